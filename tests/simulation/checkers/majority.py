"""Which owner has a lock by the majority of the servers of a world. One server is a majority of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.simulation.checkers.engine_view import View


class Majority:
    """The views of all servers as one."""

    def __init__(self, views: Sequence[View]) -> None:
        self._views = views
        self._quorum = len(views) // 2 + 1

    def owners(self, name: str) -> list[str]:
        """The owners of the lock now, by the servers' clocks."""
        owners = Counter(owner for view in self._views for owner in view.owners(name))
        return [owner for owner, servers in owners.items() if servers >= self._quorum]

    def holds(self, owner: str) -> bool:
        """Whether ``owner`` has a lock of any name."""
        return any(owner in self.owners(name) for name in self._views[0].names)
