"""Redisson's RReadWriteLock and RPermitExpirableSemaphore on the same names as ``rwlock`` and ``semaphore``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Literal

import pytest

import holdfast
from tests.interop.counterparts import awkward_names
from tests.interop.recording import NEVER, TO_JAVA, TO_PYTHON, UNORDERED
from tests.interop.redisson import Java
from tests.servers.redis import RedisServer
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)  # the first run downloads the jars

ONE_NAME: Final = "with `lock()` on one name: Python refuses, and reports a hold that Java takes as lost"
Side = Literal["read", "write"]
each_side: Final = pytest.mark.parametrize("side", ["read", "write"])


def lock_of(locks: holdfast.Client, side: Side, name: str = "table") -> holdfast.Lock:
    rwlock = locks.rwlock(name)
    return rwlock.read if side == "read" else rwlock.write


# ---- read-write locks


@pytest.mark.essential
@pytest.mark.interop("RReadWriteLock", "exclusion")
def test_readers_of_both_languages_hold_together_and_exclude_writers_of_both(
    redisson: Java, locks: holdfast.Client
) -> None:
    rwlock = locks.rwlock("table")
    with rwlock.read:
        assert redisson.take("j", "read", "table") is not None
        assert redisson.take("w", "write", "table", timeout=0.2) is None
        assert {holder.mode for holder in locks.inspect("table").holders} == {"read"}
        assert len(locks.inspect("table").holders) == 2
    assert rwlock.write.try_acquire() is None
    redisson.release("j", "read", "table")
    with rwlock.write.acquire(timeout=5):
        for side in ("read", "write"):
            assert redisson.take("j", side, "table", timeout=0.2) is None
    assert redisson.take("w", "write", "table") is not None
    assert rwlock.read.try_acquire() is None
    assert rwlock.write.try_acquire() is None
    redisson.release("w", "write", "table")
    rwlock.write.acquire(timeout=5).release()


@pytest.mark.interop("RReadWriteLock", "re-entry")
@each_side
def test_re_entries_of_java_are_released_one_by_one(redisson: Java, locks: holdfast.Client, side: Side) -> None:
    for count in (1, 2, 3):
        assert redisson.take("j", side, "table") is not None
        assert [holder.count for holder in locks.inspect("table").holders] == [count]
    for _ in range(3):
        assert locks.rwlock("table").write.try_acquire() is None
        redisson.release("j", side, "table")
    locks.rwlock("table").write.acquire(timeout=5).release()


@pytest.mark.interop("RReadWriteLock", "readers of both languages together")
def test_reader_of_one_language_survives_the_release_of_the_other(redisson: Java, locks: holdfast.Client) -> None:
    """Each release computes how long the lock lasts from the time-out keys of the readers that are left."""
    rwlock = locks.rwlock("table", ttl=30)
    reading = rwlock.read.acquire()
    assert redisson.take("j", "read", "table") is not None
    redisson.release("j", "read", "table")
    assert redisson.take("w", "write", "table", timeout=0.2) is None
    reading.renew()
    assert redisson.take("j", "read", "table") is not None
    reading.release()
    assert rwlock.write.try_acquire() is None
    assert redisson.state("j", "read", "table").holds == 1
    redisson.release("j", "read", "table")
    rwlock.write.acquire(timeout=5).release()


@each_side
def test_waiters_of_python_are_woken_by_java(redisson: Java, locks: holdfast.Client, side: Side) -> None:
    assert redisson.take("w", "write", "table") is not None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: lock_of(locks, side).acquire(timeout=20))
        eventually(lambda: locks.inspect("table").waiters == 1)
        redisson.release("w", "write", "table")
        waiting.result(20).release()


def test_writer_of_java_enters_after_the_last_reader_of_python(redisson: Java, locks: holdfast.Client) -> None:
    with ThreadPoolExecutor(2) as pool:
        leases = [pool.submit(locks.rwlock("table").read.acquire).result(10) for _ in range(2)]
        redisson.acquire("w", "write", "table", timeout=20)
        for lease in leases:
            lease.release()
    assert redisson.held("w") is not None
    redisson.release("w", "write", "table")


@pytest.mark.interop("RReadWriteLock", "downgrade to reading", direction=TO_JAVA)
def test_downgrade_by_python_lets_readers_of_java_in_and_no_writer(redisson: Java, locks: holdfast.Client) -> None:
    rwlock = locks.rwlock("table")
    writing = rwlock.write.acquire()
    reading = rwlock.read.acquire()
    redisson.acquire("j", "read", "table", timeout=20)
    writing.release()
    assert redisson.held("j") is not None
    assert redisson.take("w", "write", "table", timeout=0.2) is None
    reading.release()
    assert redisson.take("w", "write", "table", timeout=0.2) is None
    redisson.release("j", "read", "table")
    assert redisson.take("w", "write", "table") is not None
    redisson.release("w", "write", "table")


@pytest.mark.interop("RReadWriteLock", "downgrade to reading", direction=TO_PYTHON)
def test_downgrade_by_java_lets_readers_of_python_in_and_no_writer(redisson: Java, locks: holdfast.Client) -> None:
    rwlock = locks.rwlock("table")
    assert redisson.take("j", "write", "table") is not None
    assert redisson.take("j", "read", "table") is not None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: rwlock.read.acquire(timeout=20))
        eventually(lambda: locks.inspect("table").waiters == 1)
        redisson.release("j", "write", "table")
        reading = waiting.result(20)
        assert pool.submit(rwlock.write.try_acquire).result(10) is None
        redisson.release("j", "read", "table")
        reading.release()
        pool.submit(lambda: rwlock.write.acquire(timeout=5).release()).result(10)


@pytest.mark.interop("RReadWriteLock", "`forceUnlock` and `break_`", direction=TO_PYTHON)
@each_side
def test_force_unlock_by_java_is_a_loss_in_python(
    redisson: Java, connect: Callable[..., holdfast.Client], side: Side
) -> None:
    """A reader does not watch the lock, which changes with each of them: its next renewal finds the loss."""
    lease = lock_of(connect(ttl=3), side).acquire()
    assert redisson.force_unlock(side, "table")
    eventually(lambda: not lease.held, within=20)
    assert lease.lost_reason == "broken"
    assert redisson.take("w", "write", "table") is not None
    redisson.release("w", "write", "table")


@pytest.mark.interop("RReadWriteLock", "`forceUnlock` and `break_`", direction=TO_JAVA)
@each_side
def test_break_by_python_takes_the_lock_from_java(redisson: Java, locks: holdfast.Client, side: Side) -> None:
    assert redisson.take("j", side, "table") is not None
    redisson.acquire("w", "write", "table", timeout=20)
    assert locks.break_("table")
    assert redisson.held("w") is not None
    assert redisson.release("j", side, "table") is None
    assert locks.rwlock("table").read.try_acquire() is None
    redisson.release("w", "write", "table")


@pytest.mark.interop("RReadWriteLock", "awkward names")
def test_names_mean_the_same_read_write_lock(redisson: Java, locks: holdfast.Client) -> None:
    for name in awkward_names():
        with locks.rwlock(name).read:
            assert redisson.take("j", "read", name) is not None, name
            assert redisson.take("w", "write", name, timeout=0) is None, name
        assert locks.rwlock(name).write.try_acquire() is None, name
        redisson.release("j", "read", name)
        with locks.rwlock(name).write.acquire(timeout=5):
            redisson.acquire("w", "write", name, timeout=20)
        assert redisson.held("w") is not None, name
        redisson.release("w", "write", name)


@pytest.mark.essential
@pytest.mark.interop("RReadWriteLock", "wake-ups of readers that are about to sleep", direction=TO_JAVA)
def test_readers_of_java_that_are_about_to_sleep_are_woken(
    redisson: Java, locks: holdfast.Client, redis_server: RedisServer
) -> None:
    """They have subscribed, and seen the lock held, and do not sleep yet: Redisson's message "1" wakes only those that
    do. Without another they sleep until the TTL that they have seen is over, for half a minute."""
    readers = [f"j{number}" for number in range(4)]
    for _ in range(15):
        lease = locks.rwlock("table").write.acquire(timeout=20)
        eventually(lambda: not redis_server.ask("PUBSUB", "CHANNELS", "redisson_*"), within=20)  # of the last round
        for reader in readers:
            redisson.acquire(reader, "read", "table")
        eventually(lambda: redis_server.ask("PUBSUB", "CHANNELS", "redisson_*"), within=20)
        released = time.monotonic()
        lease.release()
        for reader in readers:
            held = redisson.held(reader)
            assert held is not None
            assert held.at - released < 10
        for reader in readers:
            redisson.release(reader, "read", "table")


@pytest.mark.interop("RReadWriteLock", "order of grants: Java's readers pass Python's writers", verdict=UNORDERED)
def test_readers_of_java_pass_a_writer_of_python_that_waits(redisson: Java, locks: holdfast.Client) -> None:
    assert redisson.take("j", "read", "table") is not None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: locks.rwlock("table").write.acquire(timeout=20))
        eventually(lambda: locks.inspect("table").waiters == 1)
        assert locks.rwlock("table").read.try_acquire() is None
        assert redisson.take("k", "read", "table", timeout=0) is not None
        for reader in ("j", "k"):
            assert not waiting.done()
            redisson.release(reader, "read", "table")
        waiting.result(20).release()


# ---- one name, two kinds


@pytest.mark.essential
@pytest.mark.interop("RReadWriteLock", ONE_NAME, verdict=NEVER)
@each_side
def test_plain_lock_that_java_takes_as_a_read_write_lock_is_reported_lost(
    redisson: Java, connect: Callable[..., holdfast.Client], side: Side
) -> None:
    """RReadWriteLock does not see plain locks, ours or Redisson's."""
    locks = connect(ttl=3)  # found by the next renewal at the latest
    lease = locks.lock("table").acquire()
    assert redisson.take("j", side, "table") is not None
    eventually(lambda: not lease.held, within=20)
    assert lease.lost_reason == "stolen"
    with pytest.raises(holdfast.LockLost):
        lease.release()
    assert redisson.state("j", side, "table").holds == 1
    assert redisson.release("j", side, "table") is not None
    locks.lock("table").acquire(timeout=5).release()


@pytest.mark.interop("RReadWriteLock", ONE_NAME, verdict=NEVER)
@each_side
def test_plain_lock_of_python_refuses_a_read_write_lock_of_java(
    redisson: Java, locks: holdfast.Client, side: Side
) -> None:
    assert redisson.take("j", side, "table") is not None
    with pytest.raises(holdfast.EngineRefused, match="as a rwlock"):
        locks.lock("table").try_acquire()
    redisson.release("j", side, "table")


@each_side
def test_plain_lock_of_java_waits_for_a_read_write_lock_of_python(
    redisson: Java, locks: holdfast.Client, side: Side
) -> None:
    with lock_of(locks, side):
        assert redisson.take("j", "lock", "table", timeout=0.2) is None
    assert redisson.take("j", "lock", "table") is not None
    with pytest.raises(holdfast.EngineRefused, match="as a lock"):
        lock_of(locks, side).try_acquire()
    redisson.release("j", "lock", "table")


# ---- semaphores


@pytest.mark.essential
@pytest.mark.interop("RPermitExpirableSemaphore", "exclusion")
def test_permits_of_both_languages_are_counted_together(redisson: Java, locks: holdfast.Client) -> None:
    semaphore = locks.semaphore("slots", 3)
    with semaphore.acquire(2):
        assert redisson.available("slots") == 1
        assert redisson.take("j", "permits", "slots", lease=60) is not None
        assert redisson.take("k", "permits", "slots", timeout=0.2, lease=60) is None
        assert semaphore.try_acquire() is None
        state = locks.inspect("slots")
        assert (state.size, state.free, len(state.holders)) == (3, 0, 2)
    assert semaphore.try_acquire(3) is None
    redisson.release("j", "permits", "slots")
    with semaphore.acquire(3, timeout=5):
        assert redisson.available("slots") == 0
    assert redisson.available("slots") == 3


@pytest.mark.interop("RPermitExpirableSemaphore", "creating and resizing")
def test_either_language_may_create_and_resize_a_semaphore(redisson: Java, locks: holdfast.Client) -> None:
    redisson.resize("slots", 2)
    semaphore = locks.semaphore("slots", 2)
    with semaphore.acquire(2):
        assert semaphore.try_acquire() is None
        redisson.resize("slots", 3)
        assert redisson.take("j", "permits", "slots", lease=60) is not None
        semaphore.resize(4)
        assert redisson.take("j", "permits", "slots", lease=60) is not None
        assert redisson.take("k", "permits", "slots", timeout=0.2, lease=60) is None
        for _ in range(2):
            redisson.release("j", "permits", "slots")
    assert (locks.inspect("slots").size, redisson.available("slots")) == (4, 4)


def test_waiters_of_one_language_are_woken_by_permits_of_the_other(redisson: Java, locks: holdfast.Client) -> None:
    semaphore = locks.semaphore("slots", 1)
    lease = semaphore.acquire()
    redisson.acquire("j", "permits", "slots", lease=60)
    assert redisson.available("slots") == 0
    lease.release()
    assert redisson.held("j") is not None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: semaphore.acquire(timeout=20))
        eventually(lambda: locks.inspect("slots").waiters == 1)
        redisson.release("j", "permits", "slots")
        waiting.result(20).release()


@pytest.mark.interop("RPermitExpirableSemaphore", "expiry of leases")
def test_permit_whose_lease_in_java_is_over_is_granted_to_python(redisson: Java, locks: holdfast.Client) -> None:
    redisson.resize("slots", 1)
    assert redisson.take("j", "permits", "slots", lease=0.3) is not None
    semaphore = locks.semaphore("slots", 1)
    with semaphore.acquire(timeout=20):
        assert redisson.take("k", "permits", "slots", timeout=0.2, lease=60) is None
    assert redisson.available("slots") == 1


@pytest.mark.interop("RPermitExpirableSemaphore", "`break_`")
def test_broken_permits_of_java_are_free_again(redisson: Java, locks: holdfast.Client) -> None:
    redisson.resize("slots", 1)
    assert redisson.take("j", "permits", "slots", lease=60) is not None
    redisson.acquire("k", "permits", "slots", lease=60)
    assert locks.break_("slots")
    assert redisson.held("k") is not None
    assert redisson.available("slots") == 0
    redisson.release("k", "permits", "slots")


@pytest.mark.interop("RPermitExpirableSemaphore", "awkward names")
def test_names_mean_the_same_semaphore(redisson: Java, locks: holdfast.Client) -> None:
    for name in awkward_names():
        with locks.semaphore(name, 1).acquire():
            assert redisson.available(name) == 0, name
            redisson.acquire("j", "permits", name, timeout=20, lease=60)
        assert redisson.held("j") is not None, name
        assert locks.semaphore(name, 1).try_acquire() is None, name
        redisson.release("j", "permits", name)


@pytest.mark.interop("RPermitExpirableSemaphore", "wake-ups by resizing")
def test_waiters_are_woken_by_a_larger_size_that_the_other_language_sets(
    redisson: Java, locks: holdfast.Client
) -> None:
    semaphore = locks.semaphore("slots", 1)
    with semaphore.acquire():
        redisson.acquire("j", "permits", "slots", lease=60)
        eventually(lambda: redisson.sleeps("j"))
        semaphore.resize(2)
        assert redisson.held("j") is not None
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: semaphore.acquire(timeout=20))
            eventually(lambda: locks.inspect("slots").waiters == 1)
            redisson.resize("slots", 3)
            waiting.result(20).release()
    redisson.release("j", "permits", "slots")


@pytest.mark.interop("RPermitExpirableSemaphore", "order of grants: Java may overtake", verdict=UNORDERED)
def test_java_overtakes_a_claim_for_many_permits(redisson: Java, locks: holdfast.Client) -> None:
    semaphore = locks.semaphore("slots", 2)
    lease = semaphore.acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: semaphore.acquire(2, timeout=20))
        eventually(lambda: locks.inspect("slots").waiters == 1)
        assert semaphore.try_acquire() is None
        assert redisson.take("j", "permits", "slots", timeout=0, lease=60) is not None
        lease.release()
        assert not waiting.done()
        redisson.release("j", "permits", "slots")
        waiting.result(20).release()
