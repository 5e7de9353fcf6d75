"""Ctrl-C at every place of a wait and of a notify, and a cancellation at every await: nothing stays held or queued."""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import uuid
from collections.abc import Callable

import pytest

import holdfast
from holdfast._core.core import Core
from tests.support.signal_injector import HandlerInjector, InjectedInterrupt, SignalInjector
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_warnings_of_dropped_objects")

#: Every third place: the others are next to one of these.
STEP = 3


def interrupt_everywhere(scenario: Callable[[holdfast.Client, SignalInjector], None]) -> int:
    """Run it with a signal at one place after another. After each run the lock is free, long before its ttl."""
    number = 0
    while True:
        url = f"memory:{uuid.uuid4().hex}"
        injector = SignalInjector(number)
        with holdfast.connect(url) as other, holdfast.connect(url) as client:
            client.ping()
            core: Core | None = client._opened
            assert core is not None
            try:
                scenario(client, injector)
            except InjectedInterrupt:
                gc.collect(0)
            free = other.lock("a").try_acquire(timeout=10)
            assert free is not None, f"left held by a signal at {injector.interrupted_at}"
            again = client.lock("b").acquire(timeout=10)
            again.release()
            free.release()
            own = client.lock("a").try_acquire(timeout=10)
            assert own is not None, f"this client is locked out by a signal at {injector.interrupted_at}"
            own.release()
            assert core.queue.waiting("a") == 0
            assert not core.releasing
        if not injector.interrupted_at:
            return number
        number += STEP


#: Where a signal has ended the leases of a wait.
ended: list[str] = []


def wait_with_a_signal(client: holdfast.Client, injector: SignalInjector) -> None:
    lock = client.lock("a")
    condition = client.condition(lock)
    lease = lock.acquire(timeout=10)
    inner = lock.acquire()
    try:
        with injector:
            condition.wait(timeout=0)
    except InjectedInterrupt:
        # Held, if the signal came before the wait had begun or after it was over.
        assert lease.held == inner.held, f"one of two leases is over after a signal at {injector.interrupted_at}"
        assert lease.lost_reason is None
        if not lease.held:
            ended.append(injector.interrupted_at[0])
            with pytest.raises(holdfast.NotHeld):
                lease.check()
        lease.__exit__(None, None, None)  # leaving the block is quiet
        inner.release()
        raise
    assert lease.held
    assert inner.held
    inner.release()
    lease.release()


def test_a_wait_interrupted_anywhere_ends_its_leases_as_released() -> None:
    ended.clear()
    places = interrupt_everywhere(wait_with_a_signal)
    assert places > 150
    assert len(ended) > 0.7 * places / STEP


def test_a_notify_interrupted_anywhere_leaves_the_lock_usable() -> None:
    def scenario(client: holdfast.Client, injector: SignalInjector) -> None:
        lock = client.lock("a")
        condition = client.condition(lock)
        with lock as lease:
            try:
                with injector:
                    condition.notify()
            except InjectedInterrupt:
                assert lease.held
            condition.notify_all()
            assert not condition.wait(timeout=0)

    assert interrupt_everywhere(scenario) > 30


def test_an_interrupted_end_of_a_critical_section_releases_the_lock() -> None:
    """With an entry that is to leave the queue: one more step, which may be interrupted, too."""

    def scenario(client: holdfast.Client, injector: SignalInjector) -> None:
        lock = client.lock("a")
        lease = lock.acquire(timeout=10)
        client.condition(lock).wait(timeout=0)
        with injector:
            lease.release()

    assert interrupt_everywhere(scenario) > 60


async def _given_up(url: str, suspensions: int) -> None:
    """Cancel a wait after so many turns of the loop."""
    async with holdfast.aio.connect(url) as other, holdfast.aio.connect(url) as client:
        lock = client.lock("a")

        async def wait() -> None:
            async with lock as lease:
                try:
                    await client.condition(lock).wait()
                finally:
                    with pytest.raises(holdfast.NotHeld):
                        lease.check()

        task = asyncio.create_task(wait())
        for _ in range(suspensions):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        async with other.lock("a", timeout=10) as lease:
            assert lease.held


@pytest.mark.parametrize("suspensions", range(1, 4))
def test_a_sleeping_wait_that_is_cancelled_gives_up_the_lock(suspensions: int) -> None:
    asyncio.run(_given_up(f"memory:{uuid.uuid4().hex}", suspensions))


def test_an_operation_of_a_monitor_interrupted_anywhere_changes_all_or_nothing() -> None:
    class Counter(holdfast.Monitor):
        one: int = 0
        two: int = 0
        changed = holdfast.condition()

        @holdfast.synchronized
        def add(self) -> None:
            self.one += 1
            self.changed.notify()
            self.changed.wait(timeout=0)
            self.two += 1

        @holdfast.synchronized
        def both(self) -> tuple[int, int]:
            return self.one, self.two

    def scenario(client: holdfast.Client, injector: SignalInjector) -> None:
        monitor = Counter(client, "a")
        try:
            with injector:
                monitor.add()
        except InjectedInterrupt:
            gc.collect(0)
        eventually(lambda: monitor.both() in {(0, 0), (1, 0), (1, 1)})

    assert interrupt_everywhere(scenario) > 200


def test_a_signal_handler_cannot_wait_inside_a_wait_for_the_same_lock() -> None:
    """Regression: its wait gave up the lock, so the outer one was refused by the engine, with a wrong reason."""
    refused = 0

    def handle(condition: holdfast.Condition) -> None:
        nonlocal refused
        try:
            condition.wait(timeout=0)
        except holdfast.UsageError as error:
            refused += "signal handler" in str(error)
        except holdfast.NotHeld:
            pass  # the outer wait has given it up

    with holdfast.connect(f"memory:{uuid.uuid4().hex}") as client:
        for number in itertools.count(0, STEP):
            # A name of its own: the store remembers each waiter for a while, and goes through them. With one name, each
            # wait would have more places than the one before, and the last place would not be reached in that time.
            lock = client.lock(f"a{number}")
            condition = client.condition(lock)
            with lock as lease:
                injector = HandlerInjector(number, functools.partial(handle, condition))
                with injector:
                    assert not condition.wait(timeout=0)
                assert lease.held
            if not injector.handled:
                break
    assert number > 100
    assert refused > 30
