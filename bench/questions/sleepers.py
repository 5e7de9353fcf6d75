"""1,000 consumers wait for one condition, and nothing happens: what does that cost?"""

from __future__ import annotations

import asyncio
import time
from typing import Final, NamedTuple

import redis

import holdfast
from bench import workers as worker_process
from bench.harness import Answer, Figure, Scale
from bench.server_cost import ServerMeter
from bench.workers import Workers
from tests.servers.redis import RedisServer

TITLE: Final = "Redis: 1,000 consumers that wait for a condition"

_CLIENT: Final = "client's CPU, % of one core"
_SERVER: Final = "server's CPU, %"
_LIMIT: Final = 5.0
_TTL: Final = 30.0


class Spent(NamedTuple):
    seconds: float
    client: float
    server: float
    waiting: int


def ask(scale: Scale) -> Answer:
    consumers, watched = scale(1_000, 50), float(scale(20, 3))
    with RedisServer() as server, Workers(1) as workers:
        (spent,) = workers.work(_wait, [(server.url, consumers, watched)])
    client, busy = (used / spent.seconds * 100 for used in (spent.client, spent.server))
    what = f"{spent.waiting:,} waiting consumers"
    answer = Answer(
        f"{consumers:,} tasks of one process wait for a condition of one lock; watched for {spent.seconds:.0f} s after "
        "all of them wait.",
        [Figure(what, _CLIENT, (client,)), Figure(what, _SERVER, (busy,))],
    )
    answer.promise(f"Redis, {what}: CPU of the client", f"{client:.1f} % of a core", "≤ 5 %", client <= _LIMIT)
    answer.promise(f"Redis, {what}: CPU of the server", f"{busy:.1f} % of a core", "≤ 5 %", busy <= _LIMIT)
    return answer


def _wait(url: str, consumers: int, watched: float) -> Spent:
    """In a worker."""
    return asyncio.run(_waiting(url, consumers, watched))


async def _waiting(url: str, consumers: int, watched: float) -> Spent:
    worker_process.ready()
    async with holdfast.aio.connect(url, ttl=_TTL) as locks:
        lock = locks.lock("buffer")
        changed = locks.condition(lock)

        async def consume() -> None:
            async with lock:
                await changed.wait()

        with redis.Redis.from_url(url) as probe:
            tasks = [asyncio.create_task(consume()) for _ in range(consumers)]
            inside = asyncio.create_task(_all_wait(locks, consumers))
            await asyncio.wait({inside, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            waiting = await inside
            meter, started, client = ServerMeter(probe), time.monotonic(), time.process_time()
            await asyncio.sleep(watched)
            seconds, client = time.monotonic() - started, time.process_time() - client
            server = meter.spent().cpu
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return Spent(seconds, client, server, waiting)


async def _all_wait(locks: holdfast.aio.AsyncClient, consumers: int) -> int:
    """Until all are in the condition's queue. That the lock is free says nothing: it is, between two of them."""
    lock = locks.lock("buffer")
    while (waiting := (await lock.inspect()).conditions.get("", 0)) < consumers:
        await asyncio.sleep(0.2)
    await asyncio.sleep(2.0)
    return waiting
