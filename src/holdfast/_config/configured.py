"""What ``configure()`` has set in this process.

A module of its own: the decorators look here at each call, and importing them must not import the engines' registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Configured(NamedTuple):
    """The arguments of the last ``configure()``. Another object after each call, to be compared by identity."""

    url: Any = None
    profile: str | None = None
    keywords: Mapping[str, Any] = {}


_configured = Configured()


def configured() -> Configured:
    """What the last ``configure()`` has set."""
    return _configured


def set_configured(configured: Configured) -> None:
    """Replace it. Other threads see the old or the new one, never a part of each."""
    global _configured
    _configured = configured
