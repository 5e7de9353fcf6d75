"""Locks that were renewed at a server which does not have their slot yet: their loss is not pushed there. Pure.

A request that is announced by ASKING cannot be tracked, for Redis lets only one command follow ASKING, and only one
CLIENT CACHING. So these are renewed again soon, until their slot has arrived and they are tracked there.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final

#: How long the loss of a lock whose slot is being moved may stay unnoticed (s).
LOOK_AGAIN: Final = 0.25


class Untracked:
    """Used by the watchdog alone."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._due = float("inf")

    def note(self, keys: Iterable[str], now: float) -> None:
        """These were renewed at ``now`` where they are not tracked."""
        self._keys.update(keys)
        self._due = min(self._due, now + LOOK_AGAIN)

    @property
    def due(self) -> float:
        """When to look at them."""
        return self._due

    def take(self, now: float) -> Set[str]:
        """Those to look at, if it is time. They are dropped here, and noted again if they are still not tracked."""
        if now < self._due:
            return frozenset()
        keys, self._keys, self._due = self._keys, set(), float("inf")
        return keys
