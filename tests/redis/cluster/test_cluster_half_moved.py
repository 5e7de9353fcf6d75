"""A lease whose slot is half moved is renewed for as long as the move takes and can be released afterwards."""

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


async def test_lease_survives_the_move_of_its_slot(cluster: RedisCluster) -> None:
    """Locks of one slot; each has a different key moved first."""
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
            assert errors(slot.source, "TRYAGAIN") > 0, "the move had no effect"
        for lease in leases:
            assert cluster.master_of(lease.name).ask("HGETALL", lease.name) == {lease.owner: "1"}
            assert cluster.master_of(lease.name).ask("GET", keys_of(lease.name).token) == str(lease.token)
            await (ours if lease.name.endswith(":sync") else others).do(lease.release)
    assert keys(*cluster.masters()) == set()


@APIS
@pytest.mark.parametrize("first", FIRST)
async def test_release_completes_when_the_slot_has_arrived(api: Api, first: str, cluster: RedisCluster) -> None:
    async with open_clients(api) as ours:
        lease = await ours.acquire(ours.connect(cluster.url, ttl=30.0), "job")
        with half_moved(cluster, "job") as slot:
            slot.carry(getattr(keys_of("job"), first))
            before = refused(slot.source, slot.target)
            releasing = ours.caller().do(lease.release)
            await until(lambda: refused(slot.source, slot.target) >= before + 2)
            assert not lease.held, "the lease ends before the request is sent"
            assert not releasing.done()
            slot.finish()
            await asyncio.wait_for(releasing, 5.0)
            assert keys(slot.source, slot.target) == set()


def refused(*servers: Any) -> int:
    return sum(errors(server, "TRYAGAIN") for server in servers)


@APIS
async def test_release_that_times_out_during_the_move_has_an_unknown_outcome(api: Api, cluster: RedisCluster) -> None:
    losses = LossReports()
    async with open_clients(api) as ours:
        locks = ours.connect(cluster.url, ttl=LASTING)
        lease = await ours.acquire(locks, "job", on_lost=losses)
        with half_moved(cluster, "job") as slot:
            slot.carry("job")
            began = clock.now()
            with pytest.raises(holdfast.OutcomeUnknown) as unknown:
                await ours.do(lease.release)
            assert clock.now() - began < LASTING + SLACK
            assert unknown.value.operation == "release"
            # A lock being released is not renewed: it expires, and then the name is free.
            await until(lambda: keys(slot.source, slot.target) <= {keys_of("job").metadata})
        await ours.do((await ours.acquire(locks, "job")).release)
    assert losses.reasons == []


@APIS
async def test_lock_broken_during_the_move_is_reported_as_lost(api: Api, cluster: RedisCluster) -> None:
    """The renewal of the lock key alone does not create it again."""
    losses = LossReports()
    async with open_clients(api) as ours:
        lease = await ours.acquire(ours.connect(cluster.url, ttl=LASTING), "job", on_lost=losses)
        with half_moved(cluster, "job") as slot:
            slot.carry("job")
            target: Any = slot.target.client(single_connection_client=True)
            target.execute_command("ASKING")
            assert target.delete("job") == 1
            await until(lambda: losses.reasons)
            assert losses.reasons == ["broken"]
            assert "job" not in keys(slot.source, slot.target)
        with pytest.raises(holdfast.LockLost):
            await ours.do(lease.release)
