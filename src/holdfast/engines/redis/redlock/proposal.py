"""The client's estimate of the servers' time, which each acquire proposes as its fencing token. No I/O.

All servers are given the same proposal, so their counters stay together and a second phase is rarely needed; and a
token after the loss of a counter is still larger than those before, as long as the servers' clocks roughly agree.

The client's own clock counts like one of the servers', and the lower median of all is taken. So one clock that is far
off, a server's or the client's, does not move the proposal, also when some servers do not answer: of two servers, one a
year ahead, the median alone would be a year ahead, and for a year every token smaller after the loss of a counter. From
two answers on, the proposal is never outside the range of the servers' clocks. A proposal that is too low is safe: each
counter becomes max(last + 1, P), and the token is the largest that was granted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

#: Clocks drift by some ten microseconds a second.
_GOOD_FOR: Final = 60.0
_SOON: Final = 0.05


class Proposal:
    """Microseconds of server time, by a local clock. ``time_of_day``: the client's own, in seconds."""

    def __init__(self, time_of_day: Callable[[], float] = time.time) -> None:
        self._time_of_day = time_of_day
        self._offset = 0  # what to add to the local clock, in microseconds
        self._until = float("-inf")

    def at(self, now: float) -> int | None:
        """The estimate for ``now``; None: ask the servers first."""
        return None if now >= self._until else self._offset + int(now * 1e6)

    def last(self, now: float) -> int:
        """The estimate for ``now`` by the last answers, however long they took."""
        return self._offset + int(now * 1e6)

    def learn(self, times: Sequence[int], asked: float, now: float) -> int:
        """From the servers' times (microseconds), which were asked for at ``asked`` and have arrived at ``now``.

        Kept only if they came soon: after a pause they are too old, and for a minute every token would be as much too
        small.
        """
        clocks = [*times, int(self._time_of_day() * 1e6)] if len(times) > 1 else times
        self._offset = int(statistics.median_low(clocks)) - int(now * 1e6)
        if now - asked <= _SOON:
            self._until = now + _GOOD_FOR
        return self.last(now)
