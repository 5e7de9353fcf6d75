"""Locks that were renewed at a server which does not have their slot yet: their loss is not told there. Pure.

A request that is announced by ASKING cannot be tracked, for Redis lets only one command follow ASKING, and only one
CLIENT CACHING. So these are renewed once more soon, and again, until their slot has arrived and they are tracked there.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final

#: How long a lock that has moved may be taken without a word.
LOOK_AGAIN: Final = 0.25


class Moving:
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
        """Those to look at, if it is time: they are forgotten here, and noted again if it is still so."""
        if now < self._due:
            return frozenset()
        keys, self._keys, self._due = self._keys, set(), float("inf")
        return keys
