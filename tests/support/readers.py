"""A lease of a read lock, as far as a fence knows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reader:
    token: int
    owner: str = "reader"
    mode: str = "read"
