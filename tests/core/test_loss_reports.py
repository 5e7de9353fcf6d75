"""A loss is reported exactly once to each handle, whatever the holder and other callbacks do meanwhile."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import uuid
from typing import Any

import pytest

import holdfast
from holdfast._core.watchdog import Watchdog
from tests.support.waiting import eventually, until


def store() -> str:
    return f"memory:{uuid.uuid4().hex}"


def test_a_holder_that_releases_as_soon_as_it_learns_of_the_loss_is_still_called_back() -> None:
    called: list[str] = []
    with holdfast.connect(store()) as locks:
        for number in range(20):
            lease = locks.lock(f"a{number}", on_lost=lambda lease: called.append(lease.name)).acquire()
            locks.break_(lease.name)
            with pytest.raises(holdfast.LockLost):
                lease.release()
        eventually(lambda: len(called) == 20)
    assert sorted(called) == sorted({f"a{number}" for number in range(20)})


def test_a_loss_that_the_release_finds_is_called_back_too() -> None:
    called: list[Any] = []
    name = store()
    with holdfast.connect(name) as locks, holdfast.connect(name) as other:
        lease = locks.lock("a", on_lost=called.append).acquire()
        core = locks._opened
        assert core is not None
        with core.lock:  # the watchdog, which would receive a push, has to wait
            other.break_("a")
            with pytest.raises(holdfast.LockLost):
                lease.release()
        eventually(lambda: called == [lease])


def test_a_released_handle_is_not_called_back() -> None:
    called: list[Any] = []
    with holdfast.connect(store()) as locks:
        outer = locks.lock("a").acquire()
        locks.lock("a", on_lost=called.append).acquire().release()
        kept = locks.lock("a", on_lost=called.append).acquire()
        locks.break_("a")
        eventually(lambda: called == [kept])
        for lease in (outer, kept):
            with pytest.raises(holdfast.LockLost):
                lease.release()


def test_re_entry_keeps_the_on_lost_of_its_own_lock() -> None:
    called: list[str] = []
    with holdfast.connect(store()) as locks:
        outer = locks.lock("a", on_lost=lambda lease: called.append("outer")).acquire()
        inner = locks.lock("a", on_lost=lambda lease: called.append("inner")).acquire()
        locks.break_("a")
        eventually(lambda: sorted(called) == ["inner", "outer"])
        del outer, inner


def test_re_entries_leave_no_listeners_behind() -> None:
    with holdfast.connect(store()) as locks:
        lock = locks.lock("a", on_lost=lambda lease: None)
        with lock as outer:
            for _ in range(100):
                with lock:
                    pass
            assert outer._hold.listeners is not None
            assert len(outer._hold.listeners) == 1
            assert len(outer._hold.handles) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_ends_its_thread_or_blocks_does_not_keep_others_from_being_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    go, called = threading.Event(), threading.Event()
    with holdfast.connect(store()) as locks:
        leases = [
            locks.lock("a", on_lost=lambda lease: sys.exit(1)).acquire(),
            locks.lock("b", on_lost=lambda lease: go.wait(30)).acquire(),
            locks.lock("c", on_lost=lambda lease: called.set()).acquire(),
        ]
        for lease in leases:
            locks.break_(lease.name)
        assert called.wait(5)
        go.set()
        eventually(lambda: "SystemExit" in caplog.text)


def test_break_reports_to_its_own_client_immediately() -> None:
    name = store()
    with holdfast.connect(name) as locks, holdfast.connect(name) as other:
        lease = locks.lock("a").acquire()
        assert locks.break_("a")
        assert lease.lost_reason == "broken"
        theirs = other.lock("a").acquire(timeout=5)
        assert locks.lock("a").try_acquire() is None
        theirs.release()
        locks.lock("a").acquire(timeout=0).release()


def test_a_break_before_the_watchdog_runs_is_reported_before_the_first_renewal(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_run = threading.Event()
    run = Watchdog.run

    async def held_back(watchdog: Watchdog) -> None:
        may_run.wait(20)
        await run(watchdog)

    monkeypatch.setattr(Watchdog, "run", held_back)
    with holdfast.connect(url, ttl=60) as locks, holdfast.connect(url) as other:
        lease = locks.lock("a").acquire()
        assert other.break_("a")
        assert lease.held
        may_run.set()
        eventually(lambda: lease.lost_reason == "broken", event="the loss is reported")  # the renewal is after 20 s
        with pytest.raises(holdfast.LockLost):
            lease.release()


def test_waiting_for_the_loss_ends_when_its_own_handle_is_released() -> None:
    with holdfast.connect(store()) as locks:
        first, second = locks.lock("a").acquire(), locks.lock("a").acquire()
        results: list[bool] = []
        thread = threading.Thread(target=lambda: results.append(first.lost.wait()))
        thread.start()
        eventually(lambda: first._hold._changed is not None)
        first.release()
        thread.join(5)
        assert results == [False]
        assert second.held
        second.release()


def test_a_withdrawal_goes_on_for_the_longest_ttl_that_was_asked_for() -> None:
    """After ``renew(ttl=shorter)`` the engine keeps the longer lease: giving up at the shorter one left it locked."""
    with holdfast.connect(store(), ttl=30) as locks:
        lease = locks.lock("a").acquire()
        lease.renew(ttl=0.3)
        assert lease._hold.grant.longest_ttl == 30
        lease.renew(ttl=60)
        assert lease._hold.grant.longest_ttl == 60
        lease.release()


async def test_the_task_that_acquired_may_have_ended_when_the_loss_comes() -> None:
    """``TypeError: weak object has gone away``: no callback, no cancellation, and close() raised it too."""
    called: list[Any] = []
    async with holdfast.aio.connect(store()) as locks:
        (lease,) = await asyncio.gather(locks.lock("a", reentrant=False, on_lost=called.append).acquire())
        gc.collect()
        await locks.break_("a")
        assert lease.lost_reason == "broken"
        await until(lambda: called == [lease])
        kept = await asyncio.create_task(locks.lock("b", reentrant=False).acquire())
        gc.collect()
    assert kept.lost_reason == "closed"


async def test_a_body_whose_acquiring_task_has_ended_is_cancelled() -> None:
    async with holdfast.aio.connect(store()) as locks:
        lease = await asyncio.create_task(locks.lock("a", reentrant=False).acquire())
        gc.collect()

        async def body() -> None:
            async with lease:
                await locks.break_("a")
                await asyncio.sleep(30)

        with pytest.raises(holdfast.LockLost):
            await body()


@pytest.mark.parametrize("verb", ["release", "renew", "wait"])
def test_a_lease_on_another_loop_is_refused_while_its_own_is_open_and_lost_afterwards(verb: str) -> None:
    async def take(locks: holdfast.aio.AsyncClient) -> holdfast.aio.AsyncLease:
        return await locks.lock("a").acquire()

    async def use(lease: holdfast.aio.AsyncLease) -> Any:
        return await (lease.lost.wait(1) if verb == "wait" else getattr(lease, verb)())

    locks = holdfast.aio.connect(store())
    loop = asyncio.new_event_loop()
    lease = loop.run_until_complete(take(locks))
    with pytest.raises(holdfast.UsageError, match="another event loop"):
        asyncio.run(use(lease))
    assert lease.held
    loop.close()
    if verb == "wait":
        assert asyncio.run(use(lease))
    else:
        with pytest.raises(holdfast.LockLost, match="closed"):
            asyncio.run(use(lease))
    assert lease.lost_reason == "closed"


ENDS_ITS_LOOP = """
import asyncio, gc, holdfast, sys, time
async def main():
    locks = holdfast.aio.connect(sys.argv[1])
    async with locks.lock("a"):
        pass
for number in range(10):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    gc.collect()
    time.sleep(0.001 * number)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
"""


def test_a_program_that_ends_its_loop_without_closing_the_client_prints_no_warning(redis_url: str) -> None:
    """``Task was destroyed but it is pending: holdfast-close``."""
    done = subprocess.run([sys.executable, "-c", ENDS_ITS_LOOP, redis_url], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_thousands_of_callbacks_need_few_threads() -> None:
    called: list[int] = []
    with holdfast.connect(store()) as locks:
        leases = [locks.lock(f"a{number}", on_lost=lambda lease: called.append(1)).acquire() for number in range(2_000)]
        before = threading.active_count()
        for lease in leases:
            lease._hold.core.lose_grant(lease._hold.grant, "broken")
        assert threading.active_count() - before <= 40
        eventually(lambda: len(called) == 2_000)
