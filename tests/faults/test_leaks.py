"""Nothing is left behind: threads, descriptors, connections, keys and tasks are back at the baseline (I9)."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest
import redis

import holdfast
from tests.faults.threads import threads
from tests.faults.waiting import eventually
from tests.servers.redis import RedisServer

PAIRS = 10_000
WAITS = 1_000
#: The ttl of a lock that is held for longer than that before anything is counted, and then dropped: the first renewal
#: opens a connection of the watchdog's, the first errand another. On a machine that stalls, one of the pairs may be
#: renewed, and what was asked for in a wait that was too short is withdrawn.
RENEWED = 1.0


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def admin(redis_server: RedisServer) -> redis.Redis:
    """One connection for looking at the server, open before anything is counted."""
    client = redis_server.client()
    client.ping()
    return client


def connections(admin: redis.Redis) -> int:
    return len(admin.client_list())


def assert_every_key_ends(admin: redis.Redis) -> None:
    endless = [key for key in admin.scan_iter() if admin.pttl(key) == -1]
    assert not endless


@pytest.fixture(params=["memory", "sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "redis":
        return str(request.getfixturevalue("redis_url"))
    return "memory:leaks" if request.param == "memory" else f"sqlite:{tmp_path / 'locks.db'}"


def snapshot() -> tuple[int, int]:
    gc.collect()
    return len(threads()), descriptors()


@pytest.mark.needs_redis
@pytest.mark.timeout(120)
def test_sync_cycles_leave_nothing_behind(url: str, admin: redis.Redis) -> None:
    outside = snapshot()
    with holdfast.connect(url, ttl=5.0) as locks, holdfast.connect(url, ttl=300.0) as others:
        names = [f"cycle-{number}" for number in range(50)]
        blocker = others.lock("busy").acquire()
        for name in names:
            locks.lock(name).acquire().release()
        assert locks.lock("busy").try_acquire(timeout=0.001) is None
        lease = locks.lock("dropped", ttl=RENEWED).acquire()
        assert not lease.lost.wait(1.1 * RENEWED)
        with pytest.warns(ResourceWarning, match="dropped"):
            del lease
        eventually(lambda: not locks.inspect("dropped").holders)
        before = snapshot(), connections(admin)
        for number in range(PAIRS):
            locks.lock(names[number % 50]).acquire().release()
        for _ in range(WAITS):
            assert locks.lock("busy").try_acquire(timeout=0.001) is None
        assert (snapshot(), connections(admin)) == before
        assert locks.inspect("busy").waiters == 0
        assert [state.name for state in locks.locks()] == ["busy"]
        blocker.release()
    assert_every_key_ends(admin)
    assert not admin.keys("holdfast_queue*")
    eventually(lambda: snapshot() == outside)


@pytest.mark.needs_redis
@pytest.mark.timeout(120)
async def test_async_cycles_leave_nothing_behind(url: str, admin: redis.Redis) -> None:
    async with holdfast.aio.connect(url, ttl=5.0) as locks, holdfast.aio.connect(url, ttl=300.0) as others:
        blocker = await others.lock("busy").acquire()
        await asyncio.gather(*(pairs(locks, number, 2) for number in range(50)))
        assert await locks.lock("busy").try_acquire(timeout=0.001) is None
        lease = await locks.lock("dropped", ttl=RENEWED).acquire()
        assert not await lease.lost.wait(1.1 * RENEWED)
        with pytest.warns(ResourceWarning, match="dropped"):
            del lease
        async with asyncio.timeout(5):
            while (await locks.inspect("dropped")).holders:
                await asyncio.sleep(0.01)
        before = snapshot(), connections(admin), len(asyncio.all_tasks())
        await asyncio.gather(*(pairs(locks, number, PAIRS // 50) for number in range(50)))
        for _ in range(WAITS // 10):
            waits = (locks.lock("busy").try_acquire(timeout=0.002) for _ in range(10))
            assert set(await asyncio.gather(*waits)) == {None}
        assert (snapshot(), connections(admin), len(asyncio.all_tasks())) == before
        assert (await locks.inspect("busy")).waiters == 0
        await blocker.release()
    assert_every_key_ends(admin)
    assert len(asyncio.all_tasks()) == 1


async def pairs(locks: holdfast.aio.AsyncClient, number: int, count: int) -> None:
    for _ in range(count):
        await (await locks.lock(f"cycle-{number}").acquire()).release()
