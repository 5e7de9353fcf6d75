"""The operations that are counted: what nearly every call of a user is, on each engine."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import holdfast
import holdfast.aio
from bench.floor import BareSocket
from bench.peers import TTL
from tests.servers.masters import Masters
from tests.servers.redis import RedisServer


class Operation(NamedTuple):
    name: str
    run: Callable[[], object]
    probe: Any = None  #: a client of the Redis that it uses, if it uses one


class Counter(holdfast.Monitor):
    """The smallest monitor that has something to load and to store."""

    value: int = 0

    @holdfast.synchronized
    def increment(self) -> None:
        self.value += 1


@contextmanager
def operations() -> Iterator[list[Operation]]:
    """All of them, with their servers and clients."""
    with ExitStack() as stack:
        yield [*_memory(stack), *_sqlite(stack), *_redis(stack), *_redlock(stack)]


def _memory(stack: ExitStack) -> list[Operation]:
    locks = stack.enter_context(holdfast.connect("memory:bench-check", ttl=TTL))
    lock, held = locks.lock("free"), locks.lock("held")
    lease = stack.enter_context(held.acquire())

    def block() -> None:
        with lock:
            pass

    return [
        Operation("memory: pair", lambda: lock.acquire().release()),
        Operation("memory: with lock", block),
        Operation("memory: re-entrant pair", lambda: held.acquire().release()),
        Operation("memory: lease.check", lease.check),
        Operation("memory, async: pair", _async_pair(stack, "memory:bench-check")),
    ]


def _sqlite(stack: ExitStack) -> list[Operation]:
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-"))
    locks = stack.enter_context(holdfast.connect(f"sqlite://{directory}/locks.db", ttl=TTL))
    lock, fair = locks.lock("free"), locks.lock("fair", fair=True)
    return [
        Operation("sqlite: pair", lambda: lock.acquire().release()),
        Operation("sqlite: fair pair", lambda: fair.acquire().release()),
    ]


def _redis(stack: ExitStack) -> list[Operation]:
    server = stack.enter_context(RedisServer())
    probe = server.client()
    bare = BareSocket(server.host, server.port, probe)
    stack.callback(bare.close)
    locks = stack.enter_context(holdfast.connect(server.url, ttl=TTL))
    lock, fair, semaphore, rwlock = (
        locks.lock("lock"),
        locks.lock("fair", fair=True),
        locks.semaphore("semaphore", 3),
        locks.rwlock("rwlock"),
    )
    return [
        Operation("redis: floor, 2 × EVALSHA", bare.pair, probe),
        Operation("redis: pair", lambda: lock.acquire().release(), probe),
        Operation("redis: fair pair", lambda: fair.acquire().release(), probe),
        Operation("redis: read pair", lambda: rwlock.read.acquire().release(), probe),
        Operation("redis: permit pair", lambda: semaphore.acquire().release(), probe),
        Operation("redis: monitor operation", Counter(locks, "counter").increment, probe),
        Operation("redis, async: pair", _async_pair(stack, server.url), probe),
    ]


def _redlock(stack: ExitStack) -> list[Operation]:
    """On five masters. Requests and commands are those of one of them."""
    masters = stack.enter_context(Masters(5))
    locks = stack.enter_context(holdfast.connect(masters.url, ttl=TTL))
    lock = locks.lock("lock")
    return [Operation("redlock: pair", lambda: lock.acquire().release(), masters.servers[0].client())]


def _async_pair(stack: ExitStack, url: str) -> Callable[[], object]:
    """One pair on an event loop that runs for it. The few instructions of the loop's own start are counted, too."""
    loop = asyncio.new_event_loop()
    stack.callback(loop.close)

    async def connect() -> holdfast.aio.AsyncClient:
        return holdfast.aio.connect(url, ttl=TTL)

    locks = loop.run_until_complete(connect())
    stack.callback(lambda: loop.run_until_complete(locks.close()))
    lock = locks.lock("async")

    async def pair() -> None:
        await (await lock.acquire()).release()

    return lambda: loop.run_until_complete(pair())
