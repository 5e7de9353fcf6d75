"""valkey-glide for asyncio: one pipelined connection in Rust. It has no lock; this is the usual recipe on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import glide

from bench.peers import AsyncPair
from bench.peers.set_nx import OWNER, RELEASE, TTL_MS


@asynccontextmanager
async def async_pairs(kind: str, where: str, names: Sequence[str]) -> AsyncIterator[list[AsyncPair]]:
    server = urlsplit(where)
    address = glide.NodeAddress(server.hostname or "127.0.0.1", server.port or 6379)
    client: Any = await glide.GlideClient.create(glide.GlideClientConfiguration([address], request_timeout=10_000))
    script: Any = glide.Script(RELEASE)
    expiry = glide.ExpirySet(glide.ExpiryType.MILLSEC, TTL_MS)
    free = glide.ConditionalChange.ONLY_IF_DOES_NOT_EXIST

    def of(name: str) -> AsyncPair:
        async def once() -> None:
            if await client.set(name, OWNER, conditional_set=free, expiry=expiry) is None:
                raise RuntimeError(f"{name} is not free")
            await client.invoke_script(script, keys=[name], args=[OWNER])

        return once

    try:
        yield [of(name) for name in names]
    finally:
        await client.close()
