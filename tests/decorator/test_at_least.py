"""``at_least``: the lock stays held for a minimum time after its grant, and the caller does not wait for that."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator

import pytest

import holdfast
from holdfast import aio
from holdfast.observer import Event, Released
from tests.support.waiting import LASTING, eventually


def is_held(client: holdfast.Client, name: str = "a") -> bool:
    return client.inspect(name).holders != ()


def test_lock_outlives_the_body_and_the_call_returns_immediately(
    client: holdfast.Client, other: holdfast.Client
) -> None:
    @client.locked("a", at_least=1.5, on_busy="skip", default="skipped")
    def work() -> str:
        return "done"

    began = time.monotonic()
    assert work() == "done"
    assert time.monotonic() - began < 1.0
    assert is_held(other)
    assert work() == "skipped"  # the caller itself does not get the lock either
    lease = other.lock("a").acquire(timeout=5)
    assert time.monotonic() - began >= 1.5
    lease.release()
    assert work() == "done"


def test_minimum_time_starts_at_the_grant(client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("a", at_least=0.6)
    def work() -> None:
        time.sleep(0.65)

    work()
    eventually(lambda: not is_held(other), 0.55)


def test_lock_stays_held_after_a_body_that_raises(client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("a", at_least=30)
    def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    gc.collect()
    assert is_held(other)
    client.close()
    assert not is_held(other)


def test_lock_is_renewed_until_the_minimum_time_has_passed(client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("a", at_least=LASTING + 0.5, ttl=LASTING)
    def work() -> None: ...

    began = time.monotonic()
    work()
    other.lock("a").acquire(timeout=10).release()
    assert time.monotonic() - began >= LASTING + 0.5


def test_body_and_outer_block_may_re_enter(client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("a", at_least=1.5)
    def work(depth: int) -> int:
        return depth if depth == 0 else work(depth - 1)

    assert work(3) == 0
    other.lock("a").acquire(timeout=5).release()
    with client.lock("a"):
        assert work(0) == 0
        with client.lock("a", timeout=0):
            pass
    assert is_held(other)
    assert client.lock("a").try_acquire() is None
    other.lock("a").acquire(timeout=5).release()


def test_next_caller_in_the_same_process_waits(client: holdfast.Client) -> None:
    @client.locked("a", at_least=0.2)
    def work() -> float:
        return time.monotonic()

    began = time.monotonic()
    work()
    assert work() - began >= 0.2


def test_collected_client_keeps_the_lock_for_the_minimum_time(url: str, other: holdfast.Client) -> None:
    began = time.monotonic()

    def once() -> None:
        client = holdfast.connect(url)
        client.locked("a", at_least=2.0)(lambda: None)()

    once()
    gc.collect()
    assert is_held(other)
    other.lock("a").acquire(timeout=5).release()
    assert time.monotonic() - began >= 2.0


def test_break_frees_the_lock_immediately(client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("a", at_least=30)
    def work() -> None: ...

    work()
    assert other.break_("a")
    with other.lock("a", timeout=5):
        pass


def test_generators_and_coroutines_keep_the_lock_too(url: str, client: holdfast.Client, other: holdfast.Client) -> None:
    @client.locked("g", at_least=1.5)
    def generator() -> Iterator[int]:
        yield 1

    assert list(generator()) == [1]
    assert is_held(other, "g")

    async def main() -> None:
        async with aio.connect(url) as alocks:

            @alocks.locked("c", at_least=1.5)
            async def work() -> None: ...

            await work()
            assert is_held(other, "c")
            await asyncio.to_thread(eventually, lambda: not is_held(other, "c"))

    asyncio.run(main())
    eventually(lambda: not is_held(other, "g"))


def test_exiting_process_releases_the_lock(tmp_path: object) -> None:
    code = f"""
import holdfast
locks = holdfast.connect("sqlite:///{str(tmp_path).lstrip("/")}/locks.db")
@locks.locked("a", at_least=60)
def work(): pass
work()
assert locks.inspect("a").holders
"""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
    assert time.monotonic() - began < 20
    with holdfast.connect(f"sqlite://{tmp_path}/locks.db") as locks:
        assert not is_held(locks)


def test_delayed_release_has_its_own_event_and_no_dropped_lease_warning(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The release goes the way of a dropped handle, but a dropped-lease warning here would hide real ones."""
    events: list[Event] = []
    with caplog.at_level("WARNING"), holdfast.connect(url, observer=events.append) as client:
        client.locked("a", at_least=0.5)(lambda: None)()
        eventually(lambda: any(isinstance(event, Released) for event in events))
        lease = client.lock("forgotten").acquire()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del lease
        eventually(lambda: caplog.records)  # the log contains no warning from an earlier release
    assert ["'forgotten'" in record.getMessage() for record in caplog.records] == [True]
    assert [event.outcome for event in events if isinstance(event, Released)] == ["kept", "dropped"]


def test_calls_inside_one_block_share_one_delayed_release(client: holdfast.Client) -> None:
    """A keeper per call would live until the minimum time has passed, and each call would cost more than the last."""
    short = client.locked("a", at_least=20)(lambda: None)
    long = client.locked("a", at_least=30)(lambda: None)
    with client.lock("a") as lease:
        for _ in range(50):
            short()
            long()
        assert len(lease._hold.retentions) == 2
    client.break_("a")
