"""Which task, thread or process owns a lock: faults R7, R10, R11, and calls that asyncio runs in another task."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

import holdfast
from tests.servers.redis import RedisServer
from tests.support.forking import in_a_child
from tests.support.waiting import LASTING, eventually, renewed, until


def in_thread(act: Callable[[], object]) -> object:
    result: list[object] = []
    thread = threading.Thread(target=lambda: result.append(act()))
    thread.start()
    thread.join(10)
    return result[0]


async def test_R7_two_tasks_on_one_lock_object_never_release_each_other(redis_url: str) -> None:
    async with holdfast.aio.connect(redis_url) as locks:
        lock = locks.lock("r7", ttl=1.5, renew=False)  # the second lease must last for the whole check
        first = await lock.acquire()
        assert await first.lost.wait(5)

        async def second() -> holdfast.aio.AsyncLease:
            return await lock.acquire(timeout=5)

        other = await asyncio.create_task(second())
        with pytest.raises(holdfast.LockLost):
            await first.release()
        await first.release()
        assert other.held
        assert (await locks.inspect("r7")).holders[0].owner == other.owner
        await other.release()


def test_R10_forked_child_cannot_release(redis_url: str) -> None:
    with holdfast.connect(redis_url) as locks:
        lease = locks.lock("r10").acquire()

        def child() -> None:
            assert not lease.held
            assert lease.lost_reason == "forked"
            with pytest.raises(holdfast.LockLost, match="forked"):
                lease.release()
            assert locks.lock("r10").try_acquire() is None, "the parent still holds it"
            with locks.lock("r10-child") as own:
                assert own.held, "the client reopens with its own identity"

        assert in_a_child(child)
        assert lease.held
        assert locks.inspect("r10").holders[0].owner == lease.owner
        lease.renew()
        lease.release()


def test_R11_release_from_another_thread_works(redis_url: str) -> None:
    with holdfast.connect(redis_url) as locks:
        lease = locks.lock("r11").acquire()
        in_thread(lease.release)
        assert not lease.held
        assert locks.inspect("r11").holders == ()


def test_lease_outlives_the_thread_that_acquired_it(redis_url: str) -> None:
    with holdfast.connect(redis_url) as locks:
        lock = locks.lock("moved", ttl=LASTING)
        lease = in_thread(lambda: lock.acquire(timeout=5))
        assert isinstance(lease, holdfast.Lease)
        assert in_thread(lock.try_acquire) is None, "a new thread, perhaps with the old ident, does not re-enter"
        eventually(renewed(lease))  # although its thread has ended
        lease.release()


async def test_leases_acquired_in_wait_for_and_gather_are_kept(redis_url: str) -> None:
    async with holdfast.aio.connect(redis_url) as locks:
        first = await asyncio.wait_for(locks.lock("w", ttl=LASTING).acquire(), 5)
        others = (locks.lock(name, ttl=LASTING).acquire() for name in ("g1", "g2"))
        second, third = await asyncio.gather(*others)
        await until(renewed(first, second, third))
        for lease in (first, second, third):
            await lease.release()
        assert [state async for state in locks.locks()] == []


async def test_async_holder_with_a_blocked_loop_keeps_its_lock(redis_url: str) -> None:
    async with holdfast.aio.connect(redis_url) as locks, locks.lock("busy", ttl=LASTING) as lease:
        work_until_renewed(lease)  # without yielding to the loop
        assert (await locks.inspect("busy")).holders[0].owner == lease.owner


def test_sync_holder_in_a_busy_process_keeps_its_lock(redis_server: RedisServer) -> None:
    with holdfast.connect(redis_server.url) as locks, locks.lock("cpu", ttl=LASTING) as lease:
        work_until_renewed(lease)


def work_until_renewed(lease: holdfast.Lease | holdfast.aio.AsyncLease) -> None:
    """Computes for no longer than the lease would last without a renewal."""
    is_renewed = renewed(lease)
    while not is_renewed():
        sum(range(1000))
