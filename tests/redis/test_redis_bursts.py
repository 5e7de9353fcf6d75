"""Ten thousand concurrent callers on clients that are not connected yet."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

import holdfast.aio
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer
from tests.servers.sentinel import SentinelSet

CALLERS: Final = 10_000

#: These tests compute for seconds, so nothing else can be timed beside them.
pytestmark = [pytest.mark.alone, pytest.mark.slow]


async def burst(url: str, callers: int) -> None:
    """Every caller gets its lease, and every lease is released."""
    async with holdfast.aio.connect(url, ttl=60) as locks:
        leases = await asyncio.gather(
            *(locks.lock(f"burst-{number}").acquire() for number in range(callers)), return_exceptions=True
        )
        failures = [lease for lease in leases if isinstance(lease, BaseException)]
        assert not failures, f"{len(failures)} of {callers}, first: {failures[0]!r}"
        await asyncio.gather(*(lease.release() for lease in leases if not isinstance(lease, BaseException)))


async def test_ten_thousand_concurrent_acquires_on_a_new_client_succeed(redis_server: RedisServer) -> None:
    redis_server.client().script_flush()  # a server without the scripts
    await burst(redis_server.url, CALLERS)


async def test_ten_thousand_concurrent_acquires_of_one_name_on_a_new_client_succeed(redis_server: RedisServer) -> None:
    inside = 0

    async def enter(locks: holdfast.aio.AsyncClient) -> None:
        nonlocal inside
        async with locks.lock("same"):
            inside += 1

    async with holdfast.aio.connect(redis_server.url, ttl=60) as locks:
        await asyncio.gather(*(enter(locks) for _ in range(CALLERS)))
    assert inside == CALLERS


async def test_thousands_of_concurrent_acquires_on_a_new_cluster_client_succeed(redis_cluster: RedisCluster) -> None:
    """Regression: each first caller requested the slot table and took a millisecond to parse it."""
    await burst(redis_cluster.url, CALLERS // 2)


async def test_thousands_of_concurrent_acquires_on_a_new_sentinel_client_succeed(sentinel_set: SentinelSet) -> None:
    await burst(sentinel_set.url, CALLERS // 2)
