"""Timeouts that a busy event loop does not use up: time that the loop spends on other tasks does not count.

Ten thousand tasks that start together keep the loop busy for seconds. To connect takes a turn of the loop for each
answer of the server; measured by the wall clock, no connection would ever be made in time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

#: How many turns of the loop a timeout lasts at least. A handshake needs up to eight, and one more for a sentinel.
_TURNS: Final = 20
#: As many ticks, if the loop is free. A tick that is a little late counts in full.
_TICKS: Final = 30


class LoopTimer:
    """``seconds``, of which one turn of the loop uses up a twentieth at most. Calls ``ticked`` a little more often."""

    def __init__(self, seconds: float, ticked: Callable[[], None] | None = None) -> None:
        self.seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._most = seconds / _TURNS
        self._tick_every = seconds / _TICKS
        self._ticked = ticked
        self._spent = 0.0  # when it was last seen
        self._seen = self._loop.time()
        self._stopped = False
        self._timer = self._loop.call_later(self._tick_every, self._tick)

    def spent(self) -> float:
        return self._spent + min(self._loop.time() - self._seen, self._most)

    def stop(self) -> None:
        self._stopped = True  # a tick that a signal has interrupted leaves a timer that is not known here
        self._timer.cancel()

    def _tick(self) -> None:
        if self._stopped:
            return
        self._timer = self._loop.call_later(self._tick_every, self._tick)  # first: a signal may interrupt what follows
        self._spent, self._seen = self.spent(), self._loop.time()
        if self._ticked is not None:
            self._ticked()


@contextlib.asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """As ``asyncio.timeout``, measured by a LoopTimer."""
    loop = asyncio.get_running_loop()

    def expire() -> None:
        if timer.spent() >= seconds:
            timer.stop()
            try:
                scope.reschedule(loop.time())
            except RuntimeError:
                pass  # the block is over: a signal has interrupted it before it stopped the timer

    async with asyncio.timeout(None) as scope:
        timer = LoopTimer(seconds, expire)
        try:
            yield
        finally:
            timer.stop()
