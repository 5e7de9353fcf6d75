"""The time from which the leader counts a session's timeout. Pure: callers pass the clock's readings.

The leader expires a session that has been silent for its timeout, but a client may be connected to any server. A
follower reports its active sessions to the leader only when the leader polls it, twice a tick. A request that the
follower forwards and the leader answers does not count as activity: if the follower is cut off right then, the leader
counts from the last report. So the deadline is based on an *earlier* message: one that was answered, and so had
arrived, a whole tick before a request that the leader answered.
"""

from __future__ import annotations

from collections import deque
from typing import Final

#: How many messages per tick are remembered: a few of thousands.
_PER_TICK: Final = 16
_PING: Final = -2


class Heartbeat:
    """The messages of one connection. kazoo's thread records them; ``known`` may be called by any thread."""

    def __init__(self, tick: float) -> None:
        self._tick = tick
        self._known = float("-inf")
        self._under_way: dict[bool, deque[float]] = {True: deque(), False: deque()}
        self._answered: deque[tuple[float, float]] = deque()  # when sent, when answered

    def begin(self, sent: float) -> None:
        """A connection was established. The leader has to allow it, so it counts from there."""
        self._known = sent
        self._answered.clear()
        for messages in self._under_way.values():
            messages.clear()

    def sent(self, xid: int | None, now: float) -> None:
        """A message was sent. Requests are answered in order, and so are pings; but pings may overtake requests."""
        if xid is not None and (xid > 0 or xid == _PING):
            self._under_way[xid == _PING].append(now)

    def answered(self, xid: int, now: float) -> None:
        if (xid > 0 or xid == _PING) and (messages := self._under_way[xid == _PING]):
            sent, answered = messages.popleft(), self._answered
            if not answered or now - answered[-1][1] >= self._tick / _PER_TICK:
                answered.append((sent, now))
                while len(answered) > 1 and answered[1][1] <= now - self._tick:
                    self._known = max(self._known, answered.popleft()[0])

    def unanswered_since(self) -> float | None:
        """When the oldest unanswered message was sent."""
        return min((sent for messages in self._under_way.values() for sent in tuple(messages)[:1]), default=None)

    def known(self, asked: float) -> float:
        """The earliest time from which the leader counts, if it answers a request that is sent at ``asked`` (now).

        Call this before the request is sent, and keep the result: messages that are answered later prove nothing about
        the time before, and the ones that do are dropped by then.
        """
        return max(
            (sent for sent, answered in tuple(self._answered) if answered <= asked - self._tick), default=self._known
        )
