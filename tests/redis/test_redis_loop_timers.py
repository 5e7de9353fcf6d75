"""Timeouts of asyncio connections, when a signal has interrupted the block that they are for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.engines.redis.connections import aio_timeouts
from holdfast.engines.redis.connections.aio_timeouts import LoopTimer, within
from tests.support.waiting import until


async def test_timer_of_a_block_that_was_left_without_stopping_it_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: it tried to reschedule the timeout of a block that was over, and asyncio logged the error."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    timers: list[LoopTimer] = []
    stop = LoopTimer.stop
    monkeypatch.setattr(
        LoopTimer, "stop", lambda timer: timers.append(timer)
    )  # as if a signal came before its first instruction
    async with within(0.05):
        pass
    monkeypatch.setattr(LoopTimer, "stop", stop)
    (timer,) = timers
    await until(lambda: timer._stopped)
    assert errors == []


async def test_stopped_timer_does_not_go_on_by_a_tick_that_was_interrupted() -> None:
    """Regression: interrupted between the next timer and its assignment, it ticked for ever."""
    ticks: list[float] = []
    timer = LoopTimer(0.03, lambda: ticks.append(0.0))
    interrupted = timer._timer
    timer._tick()
    timer._timer = interrupted  # the new one is not known
    timer.stop()
    seen = len(ticks)
    after = asyncio.Event()
    asyncio.get_running_loop().call_later(3 * timer.seconds / aio_timeouts._TICKS, after.set)
    await after.wait()
    assert len(ticks) == seen
