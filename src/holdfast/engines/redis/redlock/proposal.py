"""The client's estimate of the servers' time, which each acquire proposes as its fencing token. Pure.

All servers are given the same proposal, so their counters stay together and a second phase is rarely needed; and what
comes after the loss of a counter is still larger than what came before, as long as the servers' clocks roughly agree.
The median: one server whose clock was moved does not move the estimate.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

#: Clocks drift by some ten microseconds a second.
_GOOD_FOR: Final = 60.0
_SOON: Final = 0.05


class Proposal:
    """Microseconds of server time, told by a local clock."""

    def __init__(self) -> None:
        self._offset = 0  # what to add to the local clock, in microseconds
        self._until = float("-inf")

    def at(self, now: float) -> int | None:
        """The estimate for ``now``; None: ask the servers first."""
        return None if now >= self._until else self._offset + int(now * 1e6)

    def learn(self, times: Sequence[Sequence[bytes]], asked: float, now: float) -> int:
        """From answers to TIME (seconds, microseconds) to a question of the moment ``asked``, which are there ``now``.

        Kept only if they came soon: after a pause they tell what the time was, and for a minute every token would be
        as much too small.
        """
        heard = [int(seconds) * 1_000_000 + int(micros) for seconds, micros in times]
        offset = int(statistics.median_high(heard)) - int(now * 1e6)
        if now - asked <= _SOON:
            self._offset, self._until = offset, now + _GOOD_FOR
        return offset + int(now * 1e6)
