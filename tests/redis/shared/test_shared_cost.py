"""What many readers cost the server: the commands of each grant, and of holding."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

import holdfast
from holdfast._runtime import clock
from tests.redis.support import calls, command
from tests.servers.redis import RedisServer
from tests.support.waiting import renewed, until

WRITERS, TURNS = 3, 6
CLIENTS = 5


async def commands_per_grant(server: RedisServer, readers: int) -> float:
    """Readers and writers that take turns at one lock, each as often as it can."""
    server.flush()
    async with AsyncExitStack() as closing:
        clients = [await closing.enter_async_context(holdfast.aio.connect(server.url)) for _ in range(CLIENTS)]
        locks = [client.rwlock("job") for client in clients]
        holding = {"read": 0, "write": 0}

        async def take_turns(lock: holdfast.aio.AsyncLock, mode: str) -> None:
            for _ in range(TURNS):
                async with lock:
                    holding[mode] += 1
                    assert holding["write"] == 0 or holding == {"read": 0, "write": 1}
                    await asyncio.sleep(0.001)
                    holding[mode] -= 1

        for lock in locks:  # connections, scripts, and how waiters are woken
            await (await lock.write.acquire()).release()
        command(server, "CONFIG", "RESETSTAT")
        tasks = [take_turns(locks[number % CLIENTS].read, "read") for number in range(readers)]
        tasks += [take_turns(locks[number % CLIENTS].write, "write") for number in range(WRITERS)]
        await asyncio.gather(*tasks)
        return sum(calls(server).values()) / ((readers + WRITERS) * TURNS)


@pytest.mark.busy
async def test_commands_per_grant_do_not_grow_with_the_number_of_readers(
    start_redis: Callable[..., RedisServer],
) -> None:
    server = start_redis()
    few, many = await commands_per_grant(server, 10), await commands_per_grant(server, 100)
    print(f"commands per grant: {few:.1f} with 10 readers, {many:.1f} with 100")
    assert many < 1.5 * few


async def test_readers_that_hold_do_not_make_each_other_renew(start_redis: Callable[..., RedisServer]) -> None:
    """Each renewal changes the lock, which the other readers must not watch: 6 of them renewed 9,000 times a second."""
    server, ttl, clients = start_redis(), 1.5, 6
    async with AsyncExitStack() as closing:
        leases = []
        for _ in range(clients):
            client = await closing.enter_async_context(holdfast.aio.connect(server.url, ttl=ttl))
            leases.append(await client.rwlock("job").read.acquire())
        await until(renewed(*leases))
        command(server, "CONFIG", "RESETSTAT")
        began = clock.now()
        await until(renewed(*leases))
        await until(renewed(*leases))
        seconds = clock.now() - began
        scripts = calls(server)["evalsha"]
        for lease in leases:
            await lease.release()
    # Three renewals in each ttl, of each client.
    assert scripts <= clients * (3 * seconds / ttl + 2)


async def test_broken_reader_is_notified_by_a_push(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    async with holdfast.aio.connect(server.url, ttl=60) as client, holdfast.aio.connect(server.url) as operator:
        lost: list[str | None] = []
        readers = [await client.rwlock("job").read.acquire() for _ in range(2)]
        permit = await client.semaphore("sem", 3).acquire(2)
        for lease in (readers[0], permit):
            lease.on_lost(lambda each: lost.append(each.lost_reason))
        tracked = server.client()
        await until(lambda: tracked.info("stats")["tracking_total_keys"] >= 2, event="the holds are watched")
        assert await operator.break_("job")
        assert await operator.break_("sem")
        await until(lambda: lost == ["broken", "broken"])
        assert not any(lease.held for lease in (*readers, permit))
