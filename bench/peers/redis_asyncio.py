"""The Lock of redis.asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio

from bench.peers import TTL, AsyncPair


@asynccontextmanager
async def async_pairs(kind: str, where: str, names: Sequence[str]) -> AsyncIterator[list[AsyncPair]]:
    client = redis.asyncio.Redis.from_url(where, max_connections=2 * len(names) + 10)

    def of(lock: Any) -> AsyncPair:
        async def once() -> None:
            await lock.acquire()
            await lock.release()

        return once

    try:
        yield [of(client.lock(name, timeout=TTL)) for name in names]
    finally:
        await client.aclose()
