"""Right and wrong calls of the drop-in for redis-py's Lock."""

from typing import assert_type

import redis
import redis.asyncio

import holdfast
from holdfast.aio import AsyncLease
from holdfast.compat.redis_py import Lock
from holdfast.compat.redis_py.asyncio import Lock as AsyncLock

lock = Lock(redis.Redis(), "invoices", timeout=10, blocking_timeout=5, thread_local=False)
Lock(redis.Redis())  # error
Lock(redis.Redis(), "invoices", ttl=10)  # error
Lock(redis.Redis(), "invoices", timeout="10s")  # error
assert_type(lock.acquire(blocking=False), bool)
assert_type(lock.lease, holdfast.Lease | None)
lock.acquire(timeout=5)  # error
with lock as entered:
    assert_type(entered, Lock)
    entered.extend(5)


async def main() -> None:
    alock = AsyncLock(redis.asyncio.Redis(), "invoices", timeout=10)
    assert_type(await alock.acquire(), bool)
    assert_type(alock.lease, AsyncLease | None)
    async with alock:
        await alock.extend(5)
    await lock.acquire()  # error
    alock.acquire()  # error
