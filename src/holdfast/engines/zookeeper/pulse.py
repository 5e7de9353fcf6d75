"""Since when the leader counts a session's time-out. Pure: callers pass the clock's readings in.

The leader ends a session that it has not heard of for too long; but a client talks to any server. A follower tells the
leader whom it has heard from only when the leader asks it, twice a tick. A request that it passes on and the leader
answers does not count: if the follower is cut off right then, the leader counts from what it was told before. So belief
goes by the word *before*: one that was answered, so had arrived, a whole tick before a request that the leader
answered.
"""

from __future__ import annotations

from collections import deque
from typing import Final

#: How often in a tick a word is remembered: of a thousand requests a second, few.
_PER_TICK: Final = 16
_PING: Final = -2


class Pulse:
    """The words of one connection. Told by kazoo's thread; ``known`` may be called by any."""

    def __init__(self, tick: float) -> None:
        self._tick = tick
        self._known = float("-inf")
        self._under_way: dict[bool, deque[float]] = {True: deque(), False: deque()}
        self._heard: deque[tuple[float, float]] = deque()  # when sent, when answered

    def begin(self, sent: float) -> None:
        """A connection was made, which is the leader's to allow: it counts from there."""
        self._known = sent
        self._heard.clear()
        for words in self._under_way.values():
            words.clear()

    def sent(self, xid: int | None, now: float) -> None:
        """A word goes out. Requests are answered in order, and so are pings; but these may overtake."""
        if xid is not None and (xid > 0 or xid == _PING):
            self._under_way[xid == _PING].append(now)

    def answered(self, xid: int, now: float) -> None:
        if (xid > 0 or xid == _PING) and (words := self._under_way[xid == _PING]):
            sent, heard = words.popleft(), self._heard
            if not heard or now - heard[-1][1] >= self._tick / _PER_TICK:
                heard.append((sent, now))
                while len(heard) > 1 and heard[1][1] <= now - self._tick:
                    self._known = max(self._known, heard.popleft()[0])

    def unanswered_since(self) -> float | None:
        """When the oldest word was sent that is not answered yet."""
        return min((sent for words in self._under_way.values() for sent in tuple(words)[:1]), default=None)

    def known(self, asked: float) -> float:
        """From when on the leader counts at least, if it answers a request that is sent at ``asked``, which is now.

        To be called before that is sent, and kept: words that were answered later prove nothing about the time before,
        and those that would are forgotten by then.
        """
        return max((sent for sent, heard in tuple(self._heard) if heard <= asked - self._tick), default=self._known)
