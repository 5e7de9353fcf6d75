"""What a waiting claim watches: unless one of these changes, another look at the queue is useless."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, ClassVar

from holdfast.engines.zookeeper.connection import Connection, Receiver


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A node that is there, and must go."""

    path: str
    #: Whether ``has_changed`` is to be asked also if another waiter has set a watch: that may have been after a change
    #: that this waiter has not seen.
    compares: ClassVar[bool] = False

    def watch(self, connection: Connection, receiver: Receiver) -> None:
        """Set a watch, and read what ``has_changed`` compares."""
        connection.watch(self.path, receiver)

    def has_changed(self, answer: Any) -> bool:
        """Whether it was changed between the last look and the setting of the watch. (A node that is gone: yes.)"""
        return False


@dataclass(frozen=True, slots=True)
class Leases:
    """The permits that are held: ``seen`` of them are too many."""

    path: str
    seen: AbstractSet[str]
    compares: ClassVar[bool] = True

    def watch(self, connection: Connection, receiver: Receiver) -> None:
        connection.watch_children(self.path, receiver)

    def has_changed(self, answer: Any) -> bool:
        return self.seen != set(answer)


@dataclass(frozen=True, slots=True)
class Size:
    """How many permits there are. ``seen``: the transaction that wrote it; None if it was not there."""

    path: str
    seen: int | None
    compares: ClassVar[bool] = True

    def watch(self, connection: Connection, receiver: Receiver) -> None:
        connection.watch_existence(self.path, receiver)

    def has_changed(self, answer: Any) -> bool:
        return self.seen != (None if answer is None else answer.mzxid)


Obstacle = Predecessor | Leases | Size
