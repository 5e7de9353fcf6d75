"""A claim's place: its node in a queue, and what it waits for; or, of a semaphore, the permits that it holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.obstacles import Obstacle
from holdfast.engines.zookeeper.reply import OneShotEvent

#: Read the queue again after this long, even without an event.
_LOOK_AGAIN: Final = 5.0
#: A confirmation by the leader may be reused for this part of the timeout; the deadline is earlier by as much.
_CONFIRMATION_LASTS: Final = 1 / 32


@dataclass(slots=True, eq=False)
class Place:
    name: str  #: of the lock
    connection: Connection
    session: int  #: the session that created the nodes; they end with it
    ttl: float  #: the timeout of that session
    paths: tuple[str, ...]  #: one node; of a semaphore that is held, one for each permit
    token: int  #: the fencing token
    confirmed: float = float("-inf")  #: when the last request that the leader answered was sent
    counted: float = float("-inf")  #: the earliest time from which the leader counts the timeout, by that request
    watched: set[str] = field(default_factory=set)  #: the paths whose removal a watch reports
    granting: bool = False  #: permits may have been created in exchange for the node; the answer is missing
    awaited: tuple[Obstacle, ...] = ()  #: what it waited for when the queue was last read
    changed: OneShotEvent | None = None  #: set when one of that has changed, or may have
    arranged: float = 0.0  #: when the watches on it were set

    @property
    def path(self) -> str:
        return self.paths[0]

    @property
    def parent(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def node(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def ended(self) -> bool:
        """Whether its session has ended. A new session must never treat the nodes as its own."""
        return self.connection.session != self.session

    def is_confirmed(self, now: float) -> bool:
        """Whether the leader's last confirmation is recent enough to be reused."""
        return now - self.confirmed <= self.ttl * _CONFIRMATION_LASTS

    def is_waiting(self, now: float) -> bool:
        """Whether nothing that it waits for has changed since the queue was last read."""
        return self.changed is not None and not self.changed.is_set and now - self.arranged < _LOOK_AGAIN
