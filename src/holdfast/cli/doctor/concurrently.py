"""Asks several servers at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

_AT_ONCE: Final = 16

T = TypeVar("T")
R = TypeVar("R")


def run_concurrently(ask: Callable[[T], R], servers: Iterable[T]) -> tuple[R, ...]:
    """Call ``ask`` for all servers at the same time, so that several timeouts do not add up."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return tuple(pool.map(ask, servers))
