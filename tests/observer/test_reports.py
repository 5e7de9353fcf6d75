"""Reported events: exactly one end for each acquire and each hold, even after interruptions."""

from __future__ import annotations

import asyncio
import gc
import threading
import uuid
from collections import Counter
from typing import Any

import pytest

import holdfast
from holdfast.engines.base import Found, RequestFailed
from holdfast.fencing import FileFence, MemoryFence
from holdfast.observer import (
    Acquired,
    AcquireFailed,
    Busy,
    Event,
    FencePassed,
    FenceRefused,
    Lost,
    Released,
    RenewalFailed,
    Renewed,
    Waiting,
)
from tests.support.signal_injector import InjectedInterrupt, SignalInjector
from tests.support.waiting import LASTING, eventually, until


def store() -> str:
    return f"memory:{uuid.uuid4().hex}"


@pytest.mark.usefixtures("no_warnings_of_dropped_objects")
def test_signal_at_any_point_leaves_no_hold_with_unpaired_events() -> None:
    """Acquired without an end, or an end without Acquired, would make every gauge drift permanently."""
    number = 0
    while True:
        events: list[Event] = []
        injector = SignalInjector(number)
        with holdfast.connect(store(), observer=events.append) as client:
            client.ping()
            lock = client.lock("a")
            try:
                with injector:
                    lock.acquire(timeout=5).release()
            except InjectedInterrupt:
                gc.collect(0)
            free = lock.try_acquire(timeout=5)
            assert free is not None
            free.release()
        begun = Counter(event.token for event in events if isinstance(event, Acquired))
        ended = Counter(event.token for event in events if isinstance(event, (Released, Lost)))
        assert begun == ended, f"interrupted at {injector.interrupted_at}: {events}"
        assert set(begun.values()) == {1}
        if not injector.interrupted_at:
            break
        number += 1
    assert number > 80


def test_local_callers_report_their_wait_and_the_inherited_grant() -> None:
    events: list[Event] = []
    with holdfast.connect(store(), observer=events.append) as locks:
        lock = locks.lock("a")
        with lock:
            waiters = [threading.Thread(target=lambda: lock.acquire().release()) for _ in range(3)]
            for waiter in waiters:
                waiter.start()
            core = locks._opened
            assert core is not None
            eventually(lambda: core.queue.waiting("a") == 3)
        for waiter in waiters:
            waiter.join(10)
    kinds = Counter(event.kind for event in events if not isinstance(event, Renewed))
    assert kinds == {"waiting": 3, "acquired": 4, "released": 4}
    inherited = [event for event in events if isinstance(event, Acquired) and event.inherited]
    handed_over = [event for event in events if isinstance(event, Released) and event.outcome == "handed_over"]
    assert len(inherited) == len(handed_over)
    assert all(event.waited for event in inherited)


def test_cancelled_wait_is_reported_as_cancelled() -> None:
    events: list[Event] = []

    async def main() -> None:
        url = store()
        async with (
            holdfast.aio.connect(url) as holder,
            holdfast.aio.connect(url, observer=events.append) as locks,
            holder.lock("a"),
        ):
            task = asyncio.create_task(locks.lock("a").acquire())
            await until(lambda: any(isinstance(event, Waiting) for event in events))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    failed = events[-1]
    assert len(events) == 2
    assert isinstance(failed, AcquireFailed)
    assert (failed.outcome, failed.error, failed.waited) == ("cancelled", "CancelledError", True)
    assert failed.duration > 0


def test_closed_client_reports_its_waiters_as_cancelled() -> None:
    events: list[Event] = []
    url = store()
    with holdfast.connect(url) as holder, holder.lock("a"):
        locks = holdfast.connect(url, observer=events.append)
        failures: list[BaseException] = []

        def wait() -> None:
            try:
                locks.lock("a").acquire()
            except holdfast.UsageError as error:
                failures.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        eventually(lambda: any(isinstance(event, Waiting) for event in events))
        locks.close()
        waiter.join(10)
        assert len(failures) == 1
    failed = events[-1]
    assert isinstance(failed, AcquireFailed)
    assert failed.outcome == "cancelled"


class _Failing:
    """A session whose answers to one method are replaced while ``failing`` is set."""

    def __init__(self, session: Any, method: str, error: Exception) -> None:
        self._session, self._method, self._error = session, method, error
        self.failing = True

    def __getattr__(self, name: str) -> Any:
        if name != self._method or not self.failing:
            return getattr(self._session, name)

        async def fail(*arguments: Any) -> Any:
            raise self._error

        return fail


@pytest.mark.parametrize(
    "error, outcome",
    [
        (RequestFailed("no route", may_have_happened=False), "unavailable"),
        (RequestFailed("no answer", may_have_happened=True), "unknown"),
        (holdfast.EngineRefused("no rights"), "refused"),
    ],
    ids=["unavailable", "unknown", "refused"],
)
def test_engine_error_is_reported_with_its_outcome(error: Exception, outcome: str) -> None:
    events: list[Event] = []
    with holdfast.connect(store(), observer=events.append, unavailable_after=0.05) as locks:
        locks.ping()
        core = locks._opened
        assert core is not None
        core.session = _Failing(core.session, "acquire", error)
        with pytest.raises(holdfast.LockError):
            locks.lock("a").acquire()
    (failed,) = (event for event in events if not isinstance(event, Renewed))
    assert isinstance(failed, AcquireFailed)
    assert failed.outcome == outcome
    assert "no " not in failed.error  # the type, not the message


def test_failing_renewals_are_reported_and_logged_once_per_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "holdfast.watchdog")
    events: list[Event] = []
    with holdfast.connect(store(), observer=events.append, ttl=LASTING) as locks:
        leases = [locks.lock(f"a{n}").acquire() for n in range(3)]
        core = locks._opened
        assert core is not None
        failing: Any = _Failing(core.watchdog._keeper, "renew", RequestFailed("black hole", may_have_happened=True))
        core.watchdog._keeper = failing
        failed: list[RenewalFailed] = []

        def repeated() -> bool:
            failed[:] = [event for event in list(events) if isinstance(event, RenewalFailed)]
            return len(failed) >= 2 and sum(event.first for event in failed) >= 3

        def recovered() -> int:
            return sum(event.recovered for event in list(events) if isinstance(event, Renewed))

        # Each of the three: what was acquired later, after a pause, is renewed by a request of its own.
        eventually(repeated)
        failing.failing = False
        eventually(lambda: recovered() >= 3)
        eventually(lambda: "renewed again" in caplog.text)
        assert all(lease.held for lease in leases)
        for lease in leases:
            lease.release()
    assert sum(event.first for event in failed) == 3
    assert all(0 < event.remaining < LASTING and event.error == "RequestFailed" for event in failed)
    assert 1 <= caplog.text.count("could not be renewed yet") <= 3
    assert recovered() == 3


def test_batch_of_renewals_is_one_event() -> None:
    events: list[Event] = []
    with holdfast.connect(store(), observer=events.append, ttl=LASTING) as locks:
        leases = [locks.lock(f"a{n}").acquire() for n in range(200)]
        eventually(lambda: sum(event.count for event in events if isinstance(event, Renewed)) >= 200)
        renewals = [event for event in events if isinstance(event, Renewed)]
        assert len(renewals) < 50
        for lease in leases:
            lease.release()


def test_release_that_detects_a_loss_is_reported_as_lost() -> None:
    events: list[Event] = []
    url = store()
    with holdfast.connect(url, observer=events.append) as locks, holdfast.connect(url) as other:
        lease = locks.lock("a", renew=False).acquire()
        core = locks._opened
        assert core is not None
        with core.lock:  # blocks the watchdog
            other.break_("a")
            with pytest.raises(holdfast.LockLost):
                lease.release()
    ends = [event for event in events if isinstance(event, (Released, Lost))]
    assert [getattr(event, "reason", None) for event in ends] == ["broken"]


def test_release_without_an_answer_is_reported_as_unknown() -> None:
    events: list[Event] = []
    with holdfast.connect(store(), observer=events.append) as locks:
        lease = locks.lock("a", ttl=1.0, renew=False).acquire()  # the release is repeated until it is over
        core = locks._opened
        assert core is not None
        gone = RequestFailed("no answer", may_have_happened=True)
        core.session = _Failing(core.session, "release", gone)
        with pytest.raises(holdfast.OutcomeUnknown):
            lease.release()
    assert isinstance(events[-1], Released)
    assert events[-1].outcome == "unknown"
    assert events[-1].duration > 0.5
    assert events[-1].held < 0.5


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_fence_checks_are_reported_to_the_client_of_the_lease(kind: str, tmp_path: Any) -> None:
    events: list[Event] = []
    fence = MemoryFence() if kind == "memory" else FileFence(tmp_path / "fence")
    with holdfast.connect(store(), observer=events.append) as locks:
        with locks.lock("a") as old:
            fence.check("orders", old)
        with locks.lock("a") as new:
            fence.check("orders", new)
            with pytest.raises(holdfast.StaleToken):
                fence.check("orders", old)
            with pytest.raises(holdfast.StaleToken):
                fence.check("orders", old.token, old.owner)  # a plain token belongs to no known client
    passed = [event for event in events if isinstance(event, FencePassed)]
    (refused,) = (event for event in events if isinstance(event, FenceRefused))
    assert [event.token for event in passed] == [old.token, new.token]
    assert (refused.token, refused.seen, refused.owner) == (old.token, new.token, old.owner)
    checks: list[FencePassed | FenceRefused] = [*passed, refused]
    assert {(event.fence, event.resource) for event in checks} == {(type(fence).__name__, "orders")}


def test_busy_local_lock_is_reported_without_a_wait() -> None:
    events: list[Event] = []
    with holdfast.connect(store(), observer=events.append) as locks, locks.lock("a"):
        assert locks.lock("a", reentrant=False).try_acquire() is None
    _, busy, _ = (event for event in events if not isinstance(event, Renewed))
    assert isinstance(busy, Busy)
    assert not busy.waited


def test_renewed_batch_sorts_grants_by_result() -> None:
    from holdfast._core.renewing import RenewedBatch

    class Grant:
        failing = False

    class Failing(Grant):
        failing = True

    grants: list[Any] = [Grant(), Failing(), Grant(), Failing(), Grant()]
    failure = RequestFailed("no", may_have_happened=True)
    batch = RenewedBatch(grants, [Found.OURS, Found.OURS, failure, failure, Found.GONE])
    assert batch.confirmed == grants[:2]
    assert batch.recovered == [grants[1]]
    assert batch.failed == grants[2:4]
    assert batch.newly_failing == [grants[2]]
    assert batch.failure is failure
