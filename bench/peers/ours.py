"""holdfast itself, on any engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import holdfast
import holdfast.aio
from bench.peers import HOLDFAST_FAIR, TTL, AsyncPair, Mutex, Pair


class _Mutex:
    def __init__(self, lock: holdfast.Lock) -> None:
        self._lock = lock
        self._lease: holdfast.Lease | None = None

    def acquire(self, timeout: float) -> bool:
        self._lease = self._lock.try_acquire(timeout=timeout)
        return self._lease is not None

    def release(self) -> None:
        assert self._lease is not None
        self._lease.release()


@contextmanager
def pair(kind: str, where: str, name: str) -> Iterator[Pair]:
    with holdfast.connect(where, ttl=TTL) as locks:
        lock = locks.lock(name, fair=kind == HOLDFAST_FAIR)
        yield lambda: lock.acquire().release()


@contextmanager
def mutexes(kind: str, where: str) -> Iterator[Callable[[str], Mutex]]:
    with holdfast.connect(where, ttl=TTL) as locks:
        yield lambda name: _Mutex(locks.lock(name, fair=kind == HOLDFAST_FAIR))


@asynccontextmanager
async def async_pairs(kind: str, where: str, names: Sequence[str]) -> AsyncIterator[list[AsyncPair]]:
    async with holdfast.aio.connect(where, ttl=TTL) as locks:

        def of(lock: holdfast.aio.AsyncLock) -> AsyncPair:
            async def once() -> None:
                await (await lock.acquire()).release()

            return once

        yield [of(locks.lock(name, fair=kind == HOLDFAST_FAIR)) for name in names]
