"""The behaviour of a call when its lock is busy."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time

import pytest

import holdfast
from holdfast.decorator import wrapping
from holdfast.decorator.options import Plan
from tests.support.waiting import LASTING, eventually


def test_call_waits_by_default(client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("a")
    def work() -> str:
        return "done"

    lease = other.lock("a", ttl=0.2, renew=False).acquire()
    assert work() == "done"
    assert lease.lost


def test_wait_raises_after_the_timeout(client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("a", timeout="50ms")
    def work() -> None: ...

    with other.lock("a"):
        began = time.monotonic()
        with pytest.raises(holdfast.AcquireTimeout) as caught:
            work()
        assert time.monotonic() - began >= 0.05
    assert caught.value.name == "a"
    assert caught.value.timeout == 0.05
    assert work.skipped() == 0


def test_raise_tries_once_or_until_the_timeout(client: holdfast.Client, other: holdfast.Client) -> None:
    def work() -> None: ...

    with other.lock("a"):
        for timeout, expected in ((None, 0), (0.05, 0.05)):
            with pytest.raises(holdfast.AcquireTimeout) as caught:
                client.locked("a", on_busy="raise", timeout=timeout)(work)()
            assert caught.value.timeout == expected


def test_skip_returns_the_default_and_logs_and_counts(
    client: holdfast.Client, other: holdfast.Client, caplog: pytest.LogCaptureFixture
) -> None:
    runs = []

    @client.locked("{n}", prefix="job", on_busy="skip", default="busy")
    def work(n: int) -> str:
        runs.append(n)
        return "done"

    @client.locked("job:5", on_busy="skip")
    def nothing() -> str:
        return "done"

    caplog.set_level(logging.INFO, logger="holdfast.locked")
    with other.lock("job:5"):
        assert work(5) == "busy"
        assert nothing() is None
        assert work(6) == "done"
    assert work(5) == "done"
    assert runs == [6, 5]
    assert work.skipped() == 1
    records = [record for record in caplog.records if record.name == "holdfast.locked"]
    assert [record.levelno for record in records] == [logging.INFO] * 2
    assert "work() was skipped: lock 'job:5' is busy" in records[0].getMessage()


def test_skip_with_a_timeout_waits_first(client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("a", on_busy="skip", timeout=5)
    def work() -> str:
        return "done"

    lease = other.lock("a", ttl=0.2, renew=False).acquire()
    assert work() == "done"
    assert lease.lost


def test_timeout_inside_the_body_is_not_taken_for_a_busy_lock(client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("a", on_busy="skip", default="busy")
    def work() -> str:
        client.lock("b").acquire(timeout=0)
        return "done"

    with other.lock("b"), pytest.raises(holdfast.AcquireTimeout) as caught:
        work()
    assert caught.value.name == "b"
    assert work.skipped() == 0


def test_timeout_in_a_callable_key_is_not_taken_for_a_busy_lock(client: holdfast.Client) -> None:
    def key() -> str:
        raise holdfast.AcquireTimeout("of the key", name="other")

    @client.locked(key=key, on_busy="skip")
    def work() -> None: ...

    with pytest.raises(holdfast.AcquireTimeout, match="of the key"):
        work()


def test_unreachable_engine_is_not_taken_for_a_busy_lock() -> None:
    with holdfast.connect("redis://127.0.0.1:1", unavailable_after=0.05) as client:

        @client.locked("a", on_busy="skip")
        def work() -> None: ...

        with pytest.raises(holdfast.EngineUnavailable):
            work()
        assert work.skipped() == 0


def test_lock_for_has_the_same_policy_as_calls(client: holdfast.Client, other: holdfast.Client) -> None:
    lost: list[holdfast.Lease] = []

    @client.locked("a", ttl=5, max_hold=3, fair=True, reentrant=False, on_lost=lost.append, timeout=0.01)
    def work() -> None: ...

    lock = work.lock_for()
    with lock as lease:
        assert lease.ttl == 5
        assert other.lock("a").try_acquire() is None
        with pytest.raises(holdfast.AcquireTimeout):
            work()  # not re-entrant
        other.break_("a")
        assert lease.lost.wait(5)
        with pytest.raises(holdfast.LockLost):
            lease.release()
    eventually(lambda: lost == [lease])


def test_child_forked_while_another_thread_counts_a_skip_can_skip() -> None:
    counting, done = threading.Event(), threading.Event()

    def count() -> None:
        with wrapping._counting:
            counting.set()
            done.wait(LASTING)

    thread = threading.Thread(target=count)
    thread.start()
    assert counting.wait(LASTING)
    child = os.fork()
    if child == 0:
        signal.setitimer(signal.ITIMER_REAL, 10)  # ends a child that waits for a thread of its parent
        skips = wrapping.Skips("work", Plan("", "skip", None, 0.0))
        skips.default(holdfast.AcquireTimeout("busy", name="a", timeout=0.0), inside=False)
        os._exit(0)
    done.set()
    thread.join(LASTING)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
