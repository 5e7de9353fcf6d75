"""Read leases and permits while their slot is being moved: renewed key by key, for as long as the move takes."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.engines.redis.dialect.keys import keys_of, shared_keys_of
from holdfast.testing.conformance.opening import Api
from tests.redis.cluster.support import errors, half_moved, keys
from tests.servers.cluster import RedisCluster
from tests.support.clients import APIS, open_clients
from tests.support.waiting import LASTING, renewed, until

pytestmark = pytest.mark.needs_redis


@APIS
@pytest.mark.parametrize("first", ["lock", "time-out key", "holders"])
async def test_read_lease_survives_the_move_of_its_slot(api: Api, first: str, cluster: RedisCluster) -> None:
    async with open_clients(api) as ours:
        lease: Any = await ours.do(ours.connect(cluster.url, ttl=LASTING).rwlock("job").read.acquire)
        shared = shared_keys_of("job")
        moved = {"lock": "job", "time-out key": shared.timeout_of(lease.owner), "holders": shared.holders}[first]
        with half_moved(cluster, "job") as slot:
            slot.carry(moved)
            await until(renewed(lease))
            assert errors(slot.source, "TRYAGAIN") > 0, "the move had no effect"
            there = [node for node in (slot.source, slot.target) if shared.timeout_of(lease.owner) in keys(node)]
            assert there == [slot.target if first == "time-out key" else slot.source]
        await ours.do(lease.release)
    assert keys(*cluster.masters()) == set()


@APIS
@pytest.mark.parametrize("first", ["free permits", "permits", "holders"])
async def test_permit_survives_the_move_of_its_slot(api: Api, first: str, cluster: RedisCluster) -> None:
    async with open_clients(api) as ours:
        semaphore: Any = ours.connect(cluster.url, ttl=LASTING).semaphore("job", 3)
        lease: Any = await ours.do(semaphore.acquire)
        shared = shared_keys_of("job")
        moved = {"free permits": "job", "permits": keys_of("job").timeouts, "holders": shared.holders}[first]
        with half_moved(cluster, "job") as slot:
            slot.carry(moved)
            await until(renewed(lease))
            assert errors(slot.source, "TRYAGAIN") > 0, "the move had no effect"
        await ours.do(lease.release)
        assert (await ours.do(semaphore.inspect)).free == 3
