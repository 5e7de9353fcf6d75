"""One signal at every place of an acquire, a release, a block or a close, while other callers of the process wait for
the same lock: it may delay them, but never block them.

Found by the second review: a lock that was renewed for no caller, by a client that no caller could wake.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast._core import local_queue
from holdfast._core.acquisition import Acquisition
from tests.support.signal_injector import HandlerInjector, InjectedInterrupt, SignalInjector
from tests.support.waiting import eventually, until

pytestmark = pytest.mark.usefixtures("no_warnings_of_dropped_objects")

#: For a waiter that nothing but the watchdog's check of the slots wakes.
SOON = 10.0


@pytest.fixture(autouse=True)
def _tracing_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_queue, "MAX_CHAIN_SECONDS", 30.0)  # so that hand-overs are interrupted too


class Environment:
    """A client, some of whose threads wait for the lock without a time-out, and another client at the same store."""

    def __init__(self, number: int) -> None:
        store = f"memory:{uuid.uuid4().hex}"
        self.number = number  #: of the place where the signal comes
        self.injector = SignalInjector(number)
        self.client = holdfast.connect(store)
        self.other = holdfast.connect(store)
        self.client.ping()
        self.lock = self.client.lock("a")
        self.served = threading.Semaphore(0)
        self._waiters: list[threading.Thread] = []

    @property
    def queue(self) -> local_queue.LocalQueue:
        assert self.client._opened is not None
        return self.client._opened.queue

    def wait_in_threads(self, number: int) -> None:
        """Called while the lock is held: that many callers queue up in this process."""
        before = self.queue.waiting("a")
        for _ in range(number):
            self._waiters.append(threading.Thread(target=self._serve, daemon=True))
            self._waiters[-1].start()
        eventually(lambda: self.queue.waiting("a") == before + number)

    def _serve(self) -> None:
        with contextlib.suppress(holdfast.UsageError), self.lock:  # UsageError: the client was closed
            pass
        self.served.release()

    def interrupt(self, call: Callable[[], object]) -> None:
        try:
            with self.injector:
                call()
        except (InjectedInterrupt, holdfast.AcquireTimeout):
            gc.collect(0)

    def check(self) -> None:
        """All waiters are served; then every caller can have the lock."""
        place = self.injector.interrupted_at
        for _ in self._waiters:
            assert self.served.acquire(timeout=SOON), f"a waiter was left waiting by a signal at {place}"
        if self.client._opened is not None and not self.client._opened.closed:
            again = self.lock.try_acquire(timeout=SOON)
            assert again is not None, f"this caller is locked out by a signal at {place}"
            again.release()
            assert self.queue.waiting("a") == 0
        elsewhere = self.other.lock("a").try_acquire(timeout=SOON)
        assert elsewhere is not None, f"left held by a signal at {place}"
        elsewhere.release()

    def close(self) -> None:
        self.client.close()
        self.other.close()


def interrupt_everywhere(scenario: Callable[[Environment], None]) -> int:
    """Run it with a signal at its first place, its second, …, until it runs without one. Returns the number."""
    number = 0
    while True:
        environment = Environment(number)
        try:
            scenario(environment)
            environment.check()
        finally:
            environment.close()
        if not environment.injector.interrupted_at:
            return number
        number += 1


def test_interrupted_release_with_waiters_blocks_no_caller() -> None:
    def scenario(environment: Environment) -> None:
        lease = environment.lock.acquire()
        environment.wait_in_threads(2)
        environment.interrupt(lease.release)
        del lease

    assert interrupt_everywhere(scenario) > 20


def test_interrupted_block_of_a_shared_lock_with_waiters_blocks_no_caller() -> None:
    def scenario(environment: Environment) -> None:
        def block() -> None:
            with environment.lock:
                environment.injector.__exit__()
                environment.wait_in_threads(1)
                environment.injector.__enter__()

        environment.interrupt(block)

    assert interrupt_everywhere(scenario) > 60


def test_interrupted_acquire_that_waits_for_its_turn_blocks_no_caller() -> None:
    def scenario(environment: Environment) -> None:
        held, go = threading.Event(), threading.Event()

        def hold() -> None:
            with environment.lock:
                held.set()
                go.wait(SOON)

        holder = threading.Thread(target=hold, daemon=True)
        holder.start()
        held.wait(SOON)
        threading.Timer(0.01, go.set).start()
        environment.interrupt(lambda: environment.lock.acquire(timeout=SOON).release())
        go.set()
        holder.join(SOON)

    assert interrupt_everywhere(scenario) > 60


@pytest.mark.parametrize("place", ["at the engine", "in the process"])
def test_interrupted_acquire_that_times_out_blocks_no_caller(place: str) -> None:
    """The slot of the name stayed occupied by a call that had ended: the process was locked out until close()."""

    def scenario(environment: Environment) -> None:
        holder = environment.other if place == "at the engine" else environment.client
        leases: list[holdfast.Lease] = []
        thread = threading.Thread(target=lambda: leases.append(holder.lock("a").acquire()))
        thread.start()
        thread.join(SOON)
        environment.interrupt(lambda: environment.lock.acquire(timeout=0.01))
        leases[0].release()

    assert interrupt_everywhere(scenario) > 40


def test_interrupted_close_with_waiters_can_be_repeated() -> None:
    def scenario(environment: Environment) -> None:
        lease = environment.lock.acquire()
        environment.wait_in_threads(1)
        environment.interrupt(environment.client.close)
        environment.client.close()
        assert not lease.held

    assert interrupt_everywhere(scenario) > 20


@pytest.mark.parametrize("what", ["acquire", "release"])
def test_signal_handler_that_uses_the_same_lock_blocks_no_caller(what: str) -> None:
    """The handler runs between two instructions of the call that it interrupts, on the same thread, and returns."""
    number = 0
    while True:
        environment = Environment(number)

        def use() -> None:
            for name in ("a", "b"):
                lease = environment.client.lock(name).try_acquire()  # noqa: B023 -- called before the next iteration
                if lease is not None:
                    lease.release()

        environment.injector = HandlerInjector(number, use)
        try:
            if what == "release":
                lease = environment.lock.acquire()
                environment.wait_in_threads(1)
                environment.interrupt(lease.release)
            else:
                environment.interrupt(lambda: environment.lock.acquire(timeout=SOON).release())  # noqa: B023
            environment.check()
        finally:
            environment.close()
        if not environment.injector.interrupted_at:
            break
        number += 1
    assert number > 15


def test_signal_handler_that_waits_for_the_same_lock_blocks_no_caller() -> None:
    """The handler joined the queue, was the only one in it, and left: the queue to which the interrupted caller was
    added then was not the name's any more."""

    def scenario(environment: Environment) -> None:
        handler, held = threading.Lock(), threading.Event()

        def wait() -> None:
            with handler:
                environment.lock.try_acquire(timeout=0.002)

        def is_queued() -> bool:
            return not handler.locked() and environment.queue.waiting("a") == 1

        def hold() -> None:
            with environment.lock:
                held.set()
                with contextlib.suppress(AssertionError):
                    eventually(is_queued, SOON / 4)

        environment.injector = HandlerInjector(environment.number, wait)
        holder = threading.Thread(target=hold, daemon=True)
        holder.start()
        assert held.wait(SOON)
        environment.interrupt(lambda: leases.append(environment.lock.acquire(timeout=SOON)))
        holder.join(SOON)
        assert leases, f"this caller was left waiting by a signal at {environment.injector.interrupted_at}"
        leases.pop().release()

    leases: list[holdfast.Lease] = []
    assert interrupt_everywhere(scenario) > 30


async def test_a_cancelled_acquire_does_not_withdraw_what_it_has_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by review: another thread took the slot of an acquire that had begun to clean up, and the clean-up then
    withdrew the grant from the next holder: two holders."""
    undo = Acquisition._undo

    def undo_late(self: Acquisition, *handle: Any) -> None:
        self._core.repair_slots()  # as the watchdog, or another caller, may at this moment
        undo(self, *handle)

    monkeypatch.setattr(Acquisition, "_undo", undo_late)
    store = f"memory:{uuid.uuid4().hex}"
    async with holdfast.aio.connect(store) as locks, holdfast.aio.connect(store) as other:
        held = await locks.lock("a").acquire()
        first, second = (asyncio.create_task(locks.lock("a").acquire(timeout=SOON)) for _ in range(2))
        core = locks._opened
        assert core is not None
        await until(lambda: core.queue.waiting("a") == 2)
        # Reserved tokens: the claim that is handed on must have been made with waiters behind it.
        await held.release()
        chain = await first
        third = asyncio.create_task(locks.lock("a").acquire(timeout=SOON))
        await until(lambda: core.queue.waiting("a") == 2)
        await chain.release()  # to the second, which is cancelled before it can take it
        second.cancel()
        lease = await third
        await asyncio.gather(second, return_exceptions=True)
        await until(lambda: not core.watchdog._withdrawals)
        assert lease.held
        assert await other.lock("a").try_acquire() is None
        lease.check()
        await lease.release()
