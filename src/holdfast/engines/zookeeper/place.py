"""A claim's place in the queue: its node, and the predecessor it waits for. The first place holds the lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.reply import OneShotEvent

#: Read the queue again after this long, even without an event.
_LOOK_AGAIN: Final = 5.0
#: A confirmation by the leader may be reused for this part of the timeout; the deadline is earlier by as much.
_CONFIRMATION_LASTS: Final = 1 / 32


@dataclass(slots=True, eq=False)
class Place:
    name: str  #: of the lock
    connection: Connection
    session: int  #: the session that created the node; the node ends with it
    ttl: float  #: the timeout of that session
    path: str
    czxid: int  #: the fencing token
    confirmed: float = float("-inf")  #: when the last request that the leader answered was sent
    counted: float = float("-inf")  #: the earliest time from which the leader counts the timeout, by that request
    watched: bool = False  #: a watch reports the removal of the node
    predecessor: str | None = None  #: the node before this one, when the queue was last read
    predecessor_gone: OneShotEvent | None = None  #: set when that node is gone, or may be
    arranged: float = 0.0  #: when the watch on it was set

    @property
    def parent(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def node(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def ended(self) -> bool:
        """Whether its session has ended. A new session must never treat the node as its own."""
        return self.connection.session != self.session

    def is_confirmed(self, now: float) -> bool:
        """Whether the leader's last confirmation is recent enough to be reused."""
        return now - self.confirmed <= self.ttl * _CONFIRMATION_LASTS

    def is_waiting(self, now: float) -> bool:
        """Whether nothing has changed before it since the queue was last read."""
        return (
            self.predecessor_gone is not None and not self.predecessor_gone.is_set and now - self.arranged < _LOOK_AGAIN
        )
