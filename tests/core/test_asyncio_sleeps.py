"""Sleeps of tasks end at their time on the clock of deadlines, however many there are, and whatever the loop's clock
says."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from typing import Any

import pytest

from holdfast._runtime import asyncio_sleeps, clock
from holdfast._runtime.asyncio_sleeps import settled


def future() -> asyncio.Future[bool]:
    return asyncio.get_running_loop().create_future()


async def slept(seconds: float) -> float:
    """By how much a sleep took longer."""
    until = clock.now() + seconds
    assert await settled(future(), until) is False
    return clock.now() - until


def test_sleeps_end_at_their_time() -> None:
    async def main() -> None:
        late = await asyncio.gather(*(slept(seconds) for seconds in (-1.0, 0.0, 0.02, 1.01, 1.5, 2.2)))
        assert min(late) >= 0.0
        assert max(late[2:]) < 0.8, "less than the second after which the clock is read again"

    asyncio.run(main())


def test_a_long_sleep_ends_soon_after_the_machine_was_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        loop, now = asyncio.get_running_loop(), clock.now
        sleeps = asyncio.gather(*(settled(future(), now() + 3600.0) for _ in range(3)))
        await asyncio.sleep(0)
        monkeypatch.setattr(clock, "now", lambda: now() + 7200.0)
        started = loop.time()
        assert await asyncio.wait_for(sleeps, 20) == [False] * 3
        assert loop.time() - started < 5.0

    asyncio.run(main())


def test_a_thousand_long_sleeps_need_one_timer() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        futures = [future() for _ in range(1000)]
        tasks = [asyncio.create_task(settled(each, clock.now() + 3600.0)) for each in futures]
        await asyncio.sleep(0)
        assert len(loop._scheduled) == 1
        for number, each in enumerate(futures):
            each.set_result(number % 2 == 0)
        assert sum(await asyncio.gather(*tasks)) == 500
        await asyncio.sleep(0)
        assert not asyncio_sleeps._sleeps_of(loop)._until

    asyncio.run(main())


def test_a_loop_that_was_blocked_has_one_timer_for_long_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio_sleeps, "_SLICE", 0.02)

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        tasks: list[asyncio.Task[bool]] = []
        for _ in range(4):
            tasks.append(asyncio.create_task(settled(future(), clock.now() + 3600.0)))  # before the timer that is due
            await asyncio.sleep(0)
            time.sleep(0.1)  # noqa: ASYNC251  (it blocks the loop)
        counts: list[int] = []
        for _ in range(5):
            await asyncio.sleep(0.03)
            counts.append(len(loop._scheduled))
        assert max(counts) == 1, "none, in the turn of the loop that calls it"
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    asyncio.run(main())


def test_a_cancelled_sleep_is_forgotten() -> None:
    async def main() -> None:
        task = asyncio.create_task(settled(future(), clock.now() + 3600.0))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert not asyncio_sleeps._sleeps_of(asyncio.get_running_loop())._until

    asyncio.run(main())


def test_long_sleeps_go_on_after_a_signal_interrupted_the_reading_of_the_clock() -> None:
    async def main() -> None:
        first = asyncio.create_task(slept(1.2))
        await asyncio.sleep(0)
        sleeps = asyncio_sleeps._sleeps_of(asyncio.get_running_loop())
        for timer in asyncio.get_running_loop()._scheduled:  # type: ignore[attr-defined]
            timer.cancel()  # as if its call had raised at its first instruction
        sleeps._next -= 10.0
        await slept(1.3)  # reads the clock for both
        assert (await first) < 1.5

    asyncio.run(main())


def test_nothing_keeps_the_sleeps_of_a_closed_loop_alive() -> None:
    async def main() -> None:
        task = asyncio.create_task(settled(future(), clock.now() + 3600.0))
        left.append(weakref.ref(task))
        await asyncio.sleep(0)

    left: list[Any] = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # a task that is destroyed while it waits
    loop.run_until_complete(main())
    loop.close()
    gc.collect()
    assert left[0]() is None
    left.append(weakref.ref(loop))
    del loop
    gc.collect()
    assert left[1]() is None
