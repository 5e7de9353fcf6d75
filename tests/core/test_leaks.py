"""Nothing is left behind: threads, descriptors, connections, keys and tasks are back at the baseline (invariant I9).

Before anything is counted, a lock is waited for, twice, and another one is renewed and then dropped: the first waits
open connections, the first renewal one of the watchdog's, the first withdrawal another. On a machine that stalls, a
cycle may be renewed, and a claim whose wait was too short is withdrawn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import redis

import holdfast
from tests.servers.redis import RedisServer
from tests.support.leaks import Baseline
from tests.support.soak import soak
from tests.support.waiting import LASTING, eventually, renewed, until

#: Cycles of acquire and release, and of waits that time out.
CYCLES = pytest.mark.parametrize(
    "cycles, waits", [(1_000, 100), soak(10_000, 1_000, reason="shows what leaks once in thousands of cycles")]
)


@pytest.fixture
def admin(redis_server: RedisServer) -> redis.Redis:
    """One connection for looking at the server, open before anything is counted."""
    client = redis_server.client()
    client.ping()
    return client


def assert_every_key_ends(admin: redis.Redis) -> None:
    endless = [key for key in admin.scan_iter() if admin.pttl(key) == -1]
    assert not endless


def baseline(admin: redis.Redis) -> Baseline:
    """Including the connections that the server counts."""
    return Baseline(connections=lambda: len(admin.client_list()))


@contextmanager
def unreachable_allowed() -> Iterator[None]:
    """For a try so short that a scheduler stall leaves no time for an answer: then it is unreachable, not busy."""
    try:
        yield
    except holdfast.EngineUnavailable:
        pass


@pytest.mark.needs_redis
@pytest.mark.timeout(120)
@CYCLES
def test_sync_cycles_leave_nothing_behind(url: str, admin: redis.Redis, cycles: int, waits: int) -> None:
    outside = baseline(admin)
    with holdfast.connect(url, ttl=5.0) as locks, holdfast.connect(url, ttl=300.0) as others:
        names = [f"cycle-{number}" for number in range(50)]
        blocker = others.lock("busy").acquire()
        for name in names:
            locks.lock(name).acquire().release()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(locks.lock("busy").acquire)
            eventually(lambda: others.inspect("busy").waiters == 1)
            blocker.release()
            waiting.result().release()
        blocker = others.lock("busy").acquire()
        # It also asks, so it has two connections: it must have the time for that, also if the machine stalls.
        assert locks.lock("busy").try_acquire(timeout=1.0) is None
        lease = locks.lock("dropped", ttl=LASTING).acquire()
        eventually(renewed(lease))
        with pytest.warns(ResourceWarning, match="dropped"):
            del lease
        eventually(lambda: not locks.inspect("dropped").holders)
        before = baseline(admin)
        for number in range(cycles):
            locks.lock(names[number % 50]).acquire().release()
        for _ in range(waits):
            with unreachable_allowed():
                assert locks.lock("busy").try_acquire(timeout=0.001) is None
        before.wait_until_nothing_is_left(5)
        eventually(lambda: locks.inspect("busy").waiters == 0)
        eventually(lambda: [state.name for state in locks.locks()] == ["busy"])
        blocker.release()
    assert_every_key_ends(admin)
    eventually(lambda: not admin.keys("holdfast_queue*"))
    outside.wait_until_nothing_is_left(5)


@pytest.mark.needs_redis
@pytest.mark.timeout(120)
@CYCLES
async def test_async_cycles_leave_nothing_behind(url: str, admin: redis.Redis, cycles: int, waits: int) -> None:
    async with holdfast.aio.connect(url, ttl=5.0) as locks, holdfast.aio.connect(url, ttl=300.0) as others:
        blocker = await others.lock("busy").acquire()
        await asyncio.gather(*(pairs(locks, number, 2) for number in range(50)))
        waiting = asyncio.create_task(locks.lock("busy").acquire())
        async with asyncio.timeout(5):
            while (await others.inspect("busy")).waiters != 1:
                await asyncio.sleep(0.01)
        await blocker.release()
        await (await waiting).release()
        blocker = await others.lock("busy").acquire()
        lease = await locks.lock("dropped", ttl=LASTING).acquire()
        await until(renewed(lease))
        with pytest.warns(ResourceWarning, match="dropped"):
            del lease
        async with asyncio.timeout(5):
            while (await locks.inspect("dropped")).holders:
                await asyncio.sleep(0.01)
        before = baseline(admin)
        await asyncio.gather(*(pairs(locks, number, cycles // 50) for number in range(50)))
        for _ in range(waits // 10):
            await asyncio.gather(*(wait_until_timeout(locks) for _ in range(10)))
        await before.until_nothing_is_left(5)
        async with asyncio.timeout(5):
            while (await locks.inspect("busy")).waiters:
                await asyncio.sleep(0.01)
        await blocker.release()
    assert_every_key_ends(admin)
    await until(lambda: len(asyncio.all_tasks()) == 1, 5)


async def wait_until_timeout(locks: holdfast.aio.AsyncClient) -> None:
    with unreachable_allowed():
        assert await locks.lock("busy").try_acquire(timeout=0.002) is None


async def pairs(locks: holdfast.aio.AsyncClient, number: int, count: int) -> None:
    for _ in range(count):
        await (await locks.lock(f"cycle-{number}").acquire()).release()
