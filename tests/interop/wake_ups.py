"""How long a wake-up by the other language takes, and how long it may take.

Measured: from the moment before the release to the moment after the grant, both on the clock that all processes of a
host share (``CLOCK_MONOTONIC``: ``time.monotonic`` and ``System.nanoTime``). A median of ``ROUNDS``, and the longest.
The first ``WARM_UP`` rounds do not count: in these, Java loads classes, and both sides open connections.

Each round has a *reference*, too: something similar in Java alone. On a busy machine it takes long, too, for the same
reasons; so that is added to the limits. Tests that use this are marked ``alone``: beside other tests, they would
measure those.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Final

ROUNDS: Final = 25
WARM_UP: Final = 3
ALL_ROUNDS: Final = WARM_UP + ROUNDS

#: In seconds. Without a wake-up, waiters look again after seconds, or never.
MEDIAN: Final = 0.010
LONGEST: Final = 0.250


class WakeUps:
    """``reference``: how long it takes in Java alone."""

    def __init__(self, title: str, reference: Callable[[], float]) -> None:
        self._title = title
        self._reference = reference
        self._delays: list[float] = []
        self._references: list[float] = []

    def add(self, released: float, *woken: float) -> None:
        """One round, in which these waiters were woken."""
        self._delays.append(max(woken) - released)
        self._references.append(self._reference())

    def check(self) -> None:
        delays, references = self._delays[WARM_UP:], self._references[WARM_UP:]
        assert len(delays) == ROUNDS
        median, longest = statistics.median(delays), max(delays)
        usual, worst = statistics.median(references), max(references)
        print(
            f"{self._title}: p50 {median * 1e3:.2f} ms, max {longest * 1e3:.2f} ms of {ROUNDS}; "
            f"in java alone p50 {usual * 1e3:.2f} ms, max {worst * 1e3:.2f} ms"
        )
        assert median <= MEDIAN + usual
        assert longest <= LONGEST + worst
