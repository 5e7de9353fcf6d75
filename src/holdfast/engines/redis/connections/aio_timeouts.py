"""Time-outs that a busy event loop does not use up: what it spends on other tasks is no silence of a server.

Ten thousand tasks that start at once keep the loop busy for seconds. To connect takes a turn of the loop for each
answer of the server; if the clock on the wall counted, no connection would ever be made in time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

#: How many turns of the loop a time-out lasts at least. A handshake needs up to eight, and one more for a sentinel.
_TURNS: Final = 20
#: As many ticks, if the loop is free. A tick that is a little late counts in full.
_TICKS: Final = 30


class Patience:
    """``seconds``, of which one turn of the loop uses up a twentieth at most. Calls ``ticked`` a little more often."""

    def __init__(self, seconds: float, ticked: Callable[[], None] | None = None) -> None:
        self.seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._most = seconds / _TURNS
        self._tick_every = seconds / _TICKS
        self._ticked = ticked
        self._spent = 0.0  # when it was last seen
        self._seen = self._loop.time()
        self._timer = self._loop.call_later(self._tick_every, self._tick)

    def spent(self) -> float:
        return self._spent + min(self._loop.time() - self._seen, self._most)

    def stop(self) -> None:
        self._timer.cancel()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._tick_every, self._tick)  # first: a signal may interrupt what follows
        self._spent, self._seen = self.spent(), self._loop.time()
        if self._ticked is not None:
            self._ticked()


@contextlib.asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """As ``asyncio.timeout``, with patience."""
    loop = asyncio.get_running_loop()

    def expire() -> None:
        if patience.spent() >= seconds:
            patience.stop()
            scope.reschedule(loop.time())

    async with asyncio.timeout(None) as scope:
        patience = Patience(seconds, expire)
        try:
            yield
        finally:
            patience.stop()
