"""Sleeps of tasks on the clock of deadlines.

The loop's clock does not count system suspend: a sleep must read the clock of deadlines at least once a second. A loop
may have thousands of long sleeps. So it reads the clock for all of them together.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Final

from holdfast._runtime import clock

#: The clock is read this often (s).
_SLICE: Final = 1.0


async def settled(future: asyncio.Future[bool], until: float | None) -> bool:
    """Wait for ``future``; at ``until`` it is settled with False."""
    if until is None:
        return await future
    loop = future.get_loop()
    left = until - clock.now()
    if left > _SLICE:
        sleeps = _sleeps_of(loop)
        sleeps.add(future, until)
        try:
            return await future
        finally:
            sleeps.remove(future)
    timer: asyncio.TimerHandle | None = None

    def tick() -> None:
        nonlocal timer
        left = until - clock.now()
        if left > 0:
            timer = loop.call_later(left, tick)
        elif not future.done():
            future.set_result(False)

    tick()
    try:
        return await future
    finally:
        if timer is not None:
            timer.cancel()


class _LongSleeps:
    """The long sleeps of one loop. Its timer keeps it, and them, alive: they are garbage when the loop is closed."""

    __slots__ = ("__weakref__", "_loop", "_next", "_until")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._until: dict[asyncio.Future[bool], float] = {}
        self._next = float("-inf")  # when the clock is read next, on the loop's clock

    def add(self, future: asyncio.Future[bool], until: float) -> None:
        self._until[future] = until
        if self._loop.time() > self._next + _SLICE:  # there was none; or a signal has interrupted ``_tick``
            self._read_soon()

    def remove(self, future: asyncio.Future[bool]) -> None:
        self._until.pop(future, None)

    def _read_soon(self) -> None:
        self._next = self._loop.time() + _SLICE
        self._loop.call_at(self._next, self._tick)

    def _tick(self) -> None:
        if self._loop.time() < self._next - _SLICE / 2:
            return  # ``add`` came before it, in a loop that had been blocked, and has begun another series
        if not self._until:
            self._next = float("-inf")
            return
        self._read_soon()
        soon = clock.now() + _SLICE
        for future in [each for each, until in self._until.items() if until <= soon]:
            self._settle(future)

    def _settle(self, future: asyncio.Future[bool]) -> None:
        """At its time, which is less than a second away."""
        until = self._until.get(future)
        if until is None or future.done():
            return
        left = until - clock.now()
        if left > 0:
            self._loop.call_later(left, self._settle, future)
        else:
            future.set_result(False)


#: Weak in both: a long sleep refers to its loop.
_of_loops: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_LongSleeps]]] = (
    weakref.WeakKeyDictionary()
)


def _sleeps_of(loop: asyncio.AbstractEventLoop) -> _LongSleeps:
    known = _of_loops.get(loop)
    sleeps = None if known is None else known()
    if sleeps is None:
        sleeps = _LongSleeps(loop)
        _of_loops[loop] = weakref.ref(sleeps)
    return sleeps
