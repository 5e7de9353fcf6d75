"""Right and wrong calls of the async API."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import assert_type

import redis.asyncio

import holdfast
from holdfast import aio

locks = aio.connect("redis://localhost", ttl="30s", unavailable_after=timedelta(seconds=3))
assert_type(locks, aio.AsyncClient)
assert_type(aio.connect(redis.asyncio.Redis()), aio.AsyncClient)
aio.connect("redis://localhost", tll=5)  # error
aio.connect("redis://localhost", ttl=None)  # error

lock = locks.lock("order:42", timeout="5s", ttl=timedelta(seconds=5))
assert_type(lock, aio.AsyncLock)
locks.lock("order:42", ttl=[])  # error
locks.lock("order:42", blocking=False)  # error


async def lost(lease: aio.AsyncLease) -> None: ...


def lost_sync(lease: holdfast.Lease) -> None: ...


locks.lock("a", on_lost=lost)
locks.lock("a", on_lost=lost_sync)  # error


async def main() -> None:
    async with aio.connect() as client:
        assert_type(client, aio.AsyncClient)
    async with lock as lease:
        assert_type(lease, aio.AsyncLease)
        assert_type(lease.token, int)
        lease.check()
        await lease.renew("1m")
        await lease.renew([])  # error
        lease.renew("1m")  # error
        await lease.check()  # error
        await lease.token  # error
        assert_type(await lease.lost.wait("500ms"), bool)
        await lease.lost.wait(object())  # error
        if lease.lost:
            lease.on_lost(lost)
            lease.on_lost(lost_sync)  # error
    with lock:  # error
        pass
    assert_type(await lock.acquire(timeout=5), aio.AsyncLease)
    assert_type(await lock.try_acquire(), aio.AsyncLease | None)
    lock.acquire().release()  # error
    lock.acquire()  # error
    (await lock.try_acquire()).release()  # error
    lock.release()  # error
    assert_type(await locks.inspect("a"), holdfast.LockState)
    print(locks.inspect("a").holders)  # error
    assert_type(locks.locks("order:"), AsyncIterator[holdfast.LockState])
    async for state in locks.locks():
        assert_type(state, holdfast.LockState)
    for _ in locks.locks():  # error
        pass
    assert_type(await locks.break_("a"), bool)
    await locks.ping()
    locks.close()  # error
