"""Tasks that wait for a condition wake up only if they have a reason to; and they are present only while they run."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

import holdfast
from holdfast._core import parking, shared_looks, states
from holdfast._core.shared_looks import SharedLooks, Sleeper
from holdfast.engines.base import RequestFailed
from holdfast.engines.memory import registers as memory_registers
from holdfast.engines.memory.registers import MemoryListener, MemoryRegisters
from tests.support.waiting import eventually, until

#: In place of a second (s).
LOOK: Final = 0.05
#: In place of 3.5 seconds (s).
PRESENCE: Final = 0.5
COUNT: Final = 20


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_registers, "PRESENCE", PRESENCE)
    monkeypatch.setattr(shared_looks, "_LOOK", LOOK)
    monkeypatch.setattr(shared_looks, "_LONGEST_TASK_SLEEP", 60.0)
    monkeypatch.setattr(parking, "_MEANWHILE", 0.1)


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each waiter has begun to sleep."""
    counted: Counter[str] = Counter()
    wake_at = SharedLooks.wake_at

    def count(self: SharedLooks, key: Any, me: Sleeper, now: float) -> float:
        counted[me.waiter] += 1
        return wake_at(self, key, me, now)

    monkeypatch.setattr(SharedLooks, "wake_at", count)
    return counted


class Waiters:
    """``COUNT`` tasks of one client that wait for the condition of the lock ``a``, in this order."""

    def __init__(self, client: holdfast.AsyncClient) -> None:
        self.client: Any = client
        self.lock = client.lock("a")
        self.leases: list[Any] = []
        self.tasks: list[asyncio.Task[bool]] = []

    async def start(self, timeout: float | None = None) -> None:
        for _ in range(COUNT):
            self.tasks.append(asyncio.create_task(self._wait(timeout)))
            await until(lambda: len(self.leases) == len(self.tasks) and self.leases[-1]._hold.state is states.PARKED)

    async def _wait(self, timeout: float | None) -> bool:
        async with self.lock as lease:
            self.leases.append(lease)
            return bool(await self.client.condition(self.lock).wait(timeout))

    async def notify(self) -> None:
        async with self.lock:
            await self.client.condition(self.lock).notify()

    async def present(self) -> int:
        return int((await self.lock.inspect()).conditions.get("", 0))

    @property
    def leader(self) -> int:
        """The place of the one that looks for all."""
        (leader,) = self.client._open().looks._leaders.values()
        return next(place for place, lease in enumerate(self.leases) if lease._hold is leader.hold)


@asynccontextmanager
async def waiters(timeout: float | None = None) -> AsyncIterator[Waiters]:
    async with holdfast.aio.connect(f"memory:{uuid.uuid4().hex}", unavailable_after=0.3) as client:
        group = Waiters(client)
        await group.start(timeout)
        try:
            yield group
        finally:
            for task in group.tasks:
                task.cancel()
            await asyncio.gather(*group.tasks, return_exceptions=True)


def check(case: Callable[[Waiters], Awaitable[None]], timeout: float | None = None) -> None:
    async def main() -> None:
        async with waiters(timeout) as group:
            await case(group)

    asyncio.run(main())


@pytest.mark.parametrize("timeout", [None, 3600.0])
def test_sleeping_tasks_do_not_wake_up_without_a_reason(sleeps: Counter[str], timeout: float | None) -> None:
    async def case(group: Waiters) -> None:
        sleeps.clear()
        await asyncio.sleep(2 * PRESENCE)
        assert len(sleeps) == 1, f"one looks for all: {sleeps}"
        assert await group.present() == COUNT
        sleeps.clear()
        await group.notify()
        assert await group.tasks[0]
        assert len(sleeps) <= 2, f"it, the one that leads, and perhaps the one that leads then: {sleeps}"

    check(case, timeout)


def test_notified_tasks_return_one_by_one_in_their_order() -> None:
    async def case(group: Waiters) -> None:
        for task in group.tasks:
            await group.notify()
            assert await asyncio.wait_for(task, 20)

    check(case)


def test_a_notification_whose_wake_up_is_lost_is_found_by_the_one_that_looks_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def case(group: Waiters) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(MemoryListener, "wake", lambda listener: None)
            for task in group.tasks[:3]:
                await group.notify()
                assert await asyncio.wait_for(task, 20)

    check(case)


def test_the_others_stay_present_when_the_one_that_looks_for_all_is_cancelled() -> None:
    async def case(group: Waiters) -> None:
        for left in range(COUNT - 1, COUNT - 6, -1):
            leader = group.leader
            group.tasks[leader].cancel()
            await asyncio.wait([group.tasks[leader]])
            await asyncio.sleep(1.5 * PRESENCE)
            assert await group.present() == left

    check(case)


def test_the_notification_of_a_task_that_was_cancelled_is_passed_on() -> None:
    async def case(group: Waiters) -> None:
        async with group.lock:
            await group.client.condition(group.lock).notify()
            await until(lambda: not group.client._open().looks._sleepers or len(sleepers(group)) == COUNT - 1)
            group.tasks[0].cancel()  # notified, and in the queue for the lock
        assert await asyncio.wait_for(group.tasks[1], 20)

    def sleepers(group: Waiters) -> Any:
        (found,) = group.client._open().looks._sleepers.values()
        return found

    check(case)


def test_a_wait_ends_when_its_lease_is_released_by_another_task() -> None:
    async def case(group: Waiters) -> None:
        place = 3 if group.leader != 3 else 4
        await group.leases[place].release()
        with pytest.raises(holdfast.NotHeld):
            await asyncio.wait_for(group.tasks[place], 20)

    check(case)


def test_a_wait_ends_at_its_time_out() -> None:
    async def case(group: Waiters) -> None:
        assert not any(await asyncio.wait_for(asyncio.gather(*group.tasks), 20))

    check(case, timeout=1.5)


def test_all_tasks_report_at_once_that_the_engine_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not one after the other, each after a time-out of its own."""

    async def fail(*args: Any) -> Any:
        raise RequestFailed("cut", may_have_happened=False)

    async def case(group: Waiters) -> None:
        monkeypatch.setattr(MemoryRegisters, "look_all", fail)
        started = time.monotonic()
        results = await asyncio.wait_for(asyncio.gather(*group.tasks, return_exceptions=True), 20)
        assert {type(each) for each in results} == {holdfast.EngineUnavailable}
        assert time.monotonic() - started < COUNT * 0.3 / 2

    check(case)


def test_tasks_of_a_blocked_loop_are_not_present_and_come_back_with_it() -> None:
    """Another client finds that, in a thread of its own."""
    name, goes_on, blocks = uuid.uuid4().hex, threading.Event(), threading.Event()

    def run() -> None:
        async def main() -> None:
            async with holdfast.aio.connect(f"memory:{name}") as client:
                group = Waiters(client)
                await group.start()
                blocks.set()
                goes_on.wait(60)  # in the loop's own thread
                await asyncio.gather(*group.tasks)

        asyncio.run(main())

    thread = threading.Thread(target=run)
    thread.start()
    assert blocks.wait(60)
    with holdfast.connect(f"memory:{name}") as client:
        lock = client.lock("a")
        eventually(lambda: not lock.inspect().conditions)
        goes_on.set()
        eventually(lambda: lock.inspect().conditions == {"": COUNT})
        with lock:
            client.condition(lock).notify_all()
        thread.join(60)
        assert not thread.is_alive()
