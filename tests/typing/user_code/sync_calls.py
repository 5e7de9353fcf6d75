"""Right and wrong calls of the sync API."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import assert_type

import redis

import holdfast
from holdfast.fencing import FileFence

locks = holdfast.connect("redis://localhost", ttl="30s", request_timeout=timedelta(seconds=1), namespace="shop")
assert_type(locks, holdfast.Client)
assert_type(holdfast.connect(), holdfast.Client)
assert_type(holdfast.connect(profile="production"), holdfast.Client)
assert_type(holdfast.connect(redis.Redis()), holdfast.Client)
holdfast.configure("zookeeper://z1,z2/locks", tick="2s", acl="creator")

holdfast.connect(5)  # error
holdfast.connect(None, tll=5)  # error
holdfast.connect("redis://localhost", ttl=None)  # error
holdfast.connect("redis://localhost", ttl=[30])  # error
holdfast.connect("redis://localhost", observer="print")  # error
holdfast.connect("zookeeper://z1", acl="everybody")  # error
holdfast.connect("redis+cluster://c1", sharded_pubsub="maybe")  # error
holdfast.configure("redis://localhost", tiemout=5)  # error

lock = locks.lock("order:42", ttl=5, timeout="5s", max_hold=timedelta(hours=1), fair=True, require={"cross_host"})
assert_type(lock, holdfast.Lock)
locks.lock("order:42", timeout=None)
locks.lock(42)  # error
locks.lock("order:42", ttl=None)  # error
locks.lock("order:42", ttl=b"5s")  # error
locks.lock("order:42", timeout=object())  # error
locks.lock("order:42", renew="no")  # error
locks.lock("order:42", blocking=False)  # error
locks.lock("order:42", 5)  # error

with lock as lease:
    assert_type(lease, holdfast.Lease)
    assert_type(lease.token, int)
    assert_type(lease.held, bool)
    assert_type(lease.remaining, float)
    lease.check()
    lease.renew("1m")
    lease.renew([])  # error
    assert_type(lease.lost.wait("500ms"), bool)
    assert_type(lease.lost.wait(timedelta(seconds=1)), bool)
    lease.lost.wait(object())  # error
    lease.token = 5  # error
    print(lease.tokens)  # error
    with FileFence("/tmp/fence").guard("orders", lease):
        pass

assert_type(lock.acquire(timeout=5), holdfast.Lease)
assert_type(lock.try_acquire(), holdfast.Lease | None)
lock.try_acquire().release()  # error
lock.release()  # error
lock.acquire(5)  # error
lock.acquire(blocking_timeout=5)  # error


def lost(lease: holdfast.Lease) -> None: ...


def lost_text(lease: str) -> None: ...


locks.lock("a", on_lost=lost)
locks.lock("a", on_lost=lost_text)  # error
lock.acquire().on_lost(lost)
lock.acquire().on_lost(lost_text)  # error

state = locks.inspect("a")
assert_type(state, holdfast.LockState)
for holder in state.holders:
    assert_type(holder, holdfast.Holder)
assert_type(locks.locks("order:"), Iterator[holdfast.LockState])
assert_type(locks.break_("a", token=5), bool)
locks.break_("a", token="5")  # error


async def main() -> None:
    await lock.acquire()  # error
    async with lock:  # error
        pass
    await asyncio.to_thread(lock.acquire)


def wait_for(name: str, timeout: holdfast.Duration) -> holdfast.Lease | None:
    return locks.lock(name).try_acquire(timeout=timeout)


wait_for("a", 5)
wait_for("a", "5s")
wait_for("a", [])  # error
