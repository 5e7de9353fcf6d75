"""A holder whose slot is half moved: its lease is renewed however long that takes, and can be given back afterwards."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.testing.conformance.opening import Api
from tests.redis.cluster.support import SLACK, errors, half_moved, keys
from tests.servers.cluster import RedisCluster
from tests.support.clients import APIS, LossReports, open_clients
from tests.support.waiting import LASTING, renewed, until

pytestmark = pytest.mark.needs_redis

FIRST = ["name", "metadata", "token"]


async def test_a_lease_outlives_the_move_of_its_slot(cluster: RedisCluster) -> None:
    """Locks of one slot; of each another key goes first."""
    async with open_clients("sync") as ours, open_clients("async") as others:
        leases: dict[Any, str] = {}
        for each in (ours, others):
            locks = each.connect(cluster.url, ttl=LASTING)
            leases |= {await each.acquire(locks, f"{{t}}{first}:{each.api}"): first for first in FIRST}
        with half_moved(cluster, "{t}") as slot:
            slot.carry(*(getattr(keys_of(lease.name), first) for lease, first in leases.items()))
            await until(renewed(*leases))
            for lease, first in leases.items():
                there = slot.target if first == "name" else slot.source
                assert [node for node in (slot.source, slot.target) if lease.name in keys(node)] == [there]
            assert errors(slot.source, "TRYAGAIN") > 0, "or nothing was shown"
        for lease in leases:
            assert cluster.master_of(lease.name).ask("HGETALL", lease.name) == {lease.owner: "1"}
            assert cluster.master_of(lease.name).ask("GET", keys_of(lease.name).token) == str(lease.token)
            await (ours if lease.name.endswith(":sync") else others).do(lease.release)
    assert keys(*cluster.masters()) == set()


@APIS
@pytest.mark.parametrize("first", FIRST)
async def test_a_release_is_finished_when_the_slot_has_arrived(api: Api, first: str, cluster: RedisCluster) -> None:
    async with open_clients(api) as ours:
        lease = await ours.acquire(ours.connect(cluster.url, ttl=30.0), "job")
        with half_moved(cluster, "job") as slot:
            slot.carry(getattr(keys_of("job"), first))
            before = refused(slot.source, slot.target)
            releasing = ours.caller().do(lease.release)
            await until(lambda: refused(slot.source, slot.target) >= before + 2)
            assert not lease.held, "belief ends before anything is sent"
            assert not releasing.done()
            slot.finish()
            await asyncio.wait_for(releasing, 5.0)
            assert keys(slot.source, slot.target) == set()


def refused(*servers: Any) -> int:
    return sum(errors(server, "TRYAGAIN") for server in servers)


@APIS
async def test_a_release_that_the_move_outlasts_is_of_unknown_outcome(api: Api, cluster: RedisCluster) -> None:
    told = LossReports()
    async with open_clients(api) as ours:
        locks = ours.connect(cluster.url, ttl=LASTING)
        lease = await ours.acquire(locks, "job", on_lost=told)
        with half_moved(cluster, "job") as slot:
            slot.carry("job")
            began = clock.now()
            with pytest.raises(holdfast.OutcomeUnknown) as unknown:
                await ours.do(lease.release)
            assert clock.now() - began < LASTING + SLACK
            assert unknown.value.operation == "release"
            # Nobody renews what is being released: it ends by itself, and then the name is free.
            await until(lambda: keys(slot.source, slot.target) <= {keys_of("job").metadata})
        await ours.do((await ours.acquire(locks, "job")).release)
    assert told.reasons == []


@APIS
async def test_a_lock_that_is_broken_on_the_way_is_told(api: Api, cluster: RedisCluster) -> None:
    """The renewal of the lock's key alone creates nothing either."""
    told = LossReports()
    async with open_clients(api) as ours:
        lease = await ours.acquire(ours.connect(cluster.url, ttl=LASTING), "job", on_lost=told)
        with half_moved(cluster, "job") as slot:
            slot.carry("job")
            target: Any = slot.target.client(single_connection_client=True)
            target.execute_command("ASKING")
            assert target.delete("job") == 1
            await until(lambda: told.reasons)
            assert told.reasons == ["broken"]
            assert "job" not in keys(slot.source, slot.target)
        with pytest.raises(holdfast.LockLost):
            await ours.do(lease.release)
