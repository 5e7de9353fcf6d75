"""A claim's place in line: its node, and what it waits for. It holds the lock when no other is before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.reply import Alarm

#: Look again after this long even if nothing was told.
_LOOK_AGAIN: Final = 5.0
#: The leader's word is good for this part of a session, before it is asked for again: it costs belief as much.
_WORD_LASTS: Final = 1 / 32


@dataclass(slots=True, eq=False)
class Place:
    name: str  #: of the lock
    connection: Connection
    session: int  #: that created the node: it ends with it
    ttl: float  #: of that session
    path: str
    czxid: int  #: the fencing token
    confirmed: float = float("-inf")  #: when a request was sent that the leader has answered, the last so far
    counted: float = float("-inf")  #: since when, at least, the leader counts the session's time-out, by that request
    watched: bool = False  #: somebody will tell if the node is removed
    front: str | None = None  #: the node in front, when last looked at
    asleep: Alarm | None = None  #: rung when that one has gone, or may have
    arranged: float = 0.0  #: when that was arranged

    @property
    def parent(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def node(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def over(self) -> bool:
        """Whether its session has ended. A new one must never take the node for its own."""
        return self.connection.session != self.session

    def is_confirmed(self, now: float) -> bool:
        """Whether the leader's last word is new enough to be relied on once more."""
        return now - self.confirmed <= self.ttl * _WORD_LASTS

    def is_asleep(self, now: float) -> bool:
        """Whether nothing has happened in front of it since it was looked at."""
        return self.asleep is not None and not self.asleep.rung and now - self.arranged < _LOOK_AGAIN
