"""Many leases at once, what operators see and do, and nothing left behind (I9)."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable

import pytest

import holdfast
from holdfast.testing.conformance.opening import Colour
from tests.faults.waiting import eventually
from tests.redlock.support import on, owners
from tests.servers.masters import Masters
from tests.servers.redis import RedisServer

LEASES = 500


def scripts_run(server: RedisServer) -> int:
    return int(server.ask("INFO", "commandstats")["cmdstat_evalsha"]["calls"])


def shortest(server: RedisServer, leases: list[holdfast.Lease]) -> int:
    """What the lock that ends first has left, in ms."""
    pipeline = server.client().pipeline()
    for lease in leases:
        pipeline.pttl(lease.name)
    left: list[int] = pipeline.execute()
    return min(left)


def test_500_leases_are_renewed_in_batches_also_with_a_frozen_server(start_masters: Callable[..., Masters]) -> None:
    masters = start_masters(5)
    ttl = 3.0
    with holdfast.connect(masters.url, ttl=ttl) as locks:
        leases = [locks.lock(f"lease-{number}").acquire() for number in range(LEASES)]
        masters.servers[1].pause()
        watched = masters.servers[3]
        before = scripts_run(watched)
        eventually(lambda: shortest(watched, leases) > (ttl - 0.9) * 1000, within=ttl)
        assert scripts_run(watched) - before < 30, "some hundred at a time"
        assert not leases[0].lost.wait(ttl / 2)
        assert all(lease.held for lease in leases)
        masters.servers[1].resume()
        for lease in leases:
            lease.release()


async def test_operators_see_and_break_locks_with_a_minority_dead(
    start_masters: Callable[..., Masters], colour: Colour
) -> None:
    masters = start_masters(5)
    async with on(masters.url, colour) as world:
        client, other = world.connect(ttl=2), world.connect()
        lease = await world.do(client.lock("seen").acquire)
        for server in (masters.servers[0], masters.servers[3]):
            server.kill()
        state = await world.inspect(other, "seen")
        assert [(holder.owner, holder.token) for holder in state.holders] == [(lease.owner, lease.token)]
        assert state.remaining == pytest.approx(1.5, abs=0.5)
        assert [found.name for found in await world.list_locks(other, "se")] == ["seen"]
        # An attempt on two servers is nobody's lock.
        for server in masters.servers[1:3]:
            server.ask("HSET", "attempt", "somebody:1", 1)
            server.ask("SET", "holdfast_owner:{attempt}", "7 1 1.000000 somebody:1 {}")
        assert (await world.inspect(other, "attempt")).holders == ()
        assert await world.list_locks(other, "att") == []

        assert await world.do(lambda: other.break_("seen")) is True
        assert await world.do(lambda: lease.lost.wait(5)) is True
        assert lease.lost_reason == "broken"
        assert await world.do(lambda: other.break_("seen")) is False
        again = await world.do(other.lock("seen").acquire)
        assert again.token > lease.token
        await world.do(again.release)
        with pytest.raises(holdfast.LockLost):
            await world.do(lease.release)


async def test_close_releases_on_every_server(five_masters: Masters, colour: Colour) -> None:
    async with on(five_masters.url, colour) as world:
        client = world.connect()
        leases = [world.keep(await world.do(client.lock(f"n{number}").acquire)) for number in range(5)]
        await world.do(client.close)
        for number, lease in enumerate(leases):
            assert owners(five_masters, f"n{number}") == [None] * 5
            assert lease.lost_reason == "closed"


# ---- nothing is left


def snapshot() -> tuple[int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def connections(masters: Masters) -> list[int]:
    return [server.ask("INFO", "clients")["connected_clients"] for server in masters.servers if server.answering]


def assert_every_key_ends(masters: Masters) -> None:
    for server in masters.servers:
        if server.answering:
            client = server.client()
            assert not [key for key in client.scan_iter() if client.pttl(key) == -1]


@pytest.mark.parametrize("dead", [0, 2])
def test_sync_cycles_leave_nothing_behind(start_masters: Callable[..., Masters], dead: int) -> None:
    masters = start_masters(5)
    connections(masters)
    outside = snapshot()
    with holdfast.connect(masters.url) as locks, holdfast.connect(masters.url, ttl=300) as others:
        busy = others.lock("busy").acquire()
        for server in masters.servers[:dead]:
            server.kill()
        cycles(locks, 10)
        assert locks.lock("busy").try_acquire(timeout=0.1) is None  # has waited, with what that needs
        before = snapshot(), connections(masters)
        cycles(locks, 200)
        assert (snapshot(), connections(masters)) == before
        busy.release()
    eventually(lambda: snapshot() == outside)
    assert_every_key_ends(masters)


def cycles(locks: holdfast.Client, count: int) -> None:
    for number in range(count):
        locks.lock(f"cycle-{number % 20}").acquire().release()
        if number % 50 == 0:
            assert locks.lock("busy").try_acquire(timeout=0.01) is None


@pytest.mark.parametrize("dead", [0, 2])
async def test_async_cycles_leave_nothing_behind(start_masters: Callable[..., Masters], dead: int) -> None:
    masters = start_masters(5)
    connections(masters)
    async with holdfast.aio.connect(masters.url) as locks, holdfast.aio.connect(masters.url, ttl=300) as others:
        busy = await others.lock("busy").acquire()
        for server in masters.servers[:dead]:
            server.kill()
        await async_cycles(locks, 10)
        assert await locks.lock("busy").try_acquire(timeout=0.1) is None
        before = snapshot(), connections(masters), len(asyncio.all_tasks())
        await async_cycles(locks, 200)
        assert (snapshot(), connections(masters), len(asyncio.all_tasks())) == before
        await busy.release()
    assert len(asyncio.all_tasks()) == 1
    assert_every_key_ends(masters)


async def async_cycles(locks: holdfast.aio.AsyncClient, count: int) -> None:
    async def cycle(number: int) -> None:
        await (await locks.lock(f"cycle-{number}").acquire()).release()

    for _ in range(count // 10):
        await asyncio.gather(*(cycle(number) for number in range(10)))
    assert await locks.lock("busy").try_acquire(timeout=0.01) is None
