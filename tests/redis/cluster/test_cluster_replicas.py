"""``replicas=1`` on a cluster: acquire and renewals count only if the replica of the shard has them."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast.testing.conformance.opening import Api
from tests.redis.cluster.support import SLACK, frozen, keys, move, names_at
from tests.redis.wait_command import end_waits
from tests.servers.cluster import RedisCluster
from tests.support.clients import APIS, LossReports, open_clients
from tests.support.waiting import renewed, until

pytestmark = pytest.mark.needs_redis

UNAVAILABLE_AFTER = 0.5
#: Long enough for the answer "too few" on a busy machine, which comes after four fifths of this.
REQUEST_TIMEOUT = 10.0
#: Long enough although each round waits for the frozen replica and the scheduler may stall for a second.
TTL = 3.0


@APIS
async def test_acquire_is_replicated_before_it_returns(api: Api, cluster: RedisCluster) -> None:
    async with open_clients(api) as ours:
        locks = ours.connect(cluster.url, replicas=1)
        for master in cluster.masters():
            (name,) = names_at(master, 1)
            lease = await ours.acquire(locks, name)
            assert name in keys(cluster.replica_of(master))
            await ours.do(lease.renew)
            await ours.do(lease.release)
        await ours.do(locks.ping)
        target = move(cluster, "job")
        lease = await ours.acquire(locks, "job")  # is redirected
        assert "job" in keys(cluster.replica_of(target))
        await ours.do(lease.release)


@APIS
async def test_acquire_without_the_replica_is_refused_and_leaves_no_lock(api: Api, cluster: RedisCluster) -> None:
    master, other, _ = cluster.masters()
    ((name,), (elsewhere,)) = names_at(master, 1), names_at(other, 1)
    async with open_clients(api) as ours:
        locks = ours.connect(
            cluster.url, replicas=1, request_timeout=REQUEST_TIMEOUT, unavailable_after=UNAVAILABLE_AFTER
        )
        await ours.do(locks.ping)
        with frozen(cluster.replica_of(master)):
            began = clock.now()
            acquiring = asyncio.ensure_future(ours.acquire(locks, name, timeout=None))
            while not acquiring.done():
                end_waits(master)
                await asyncio.sleep(0.01)
            with pytest.raises(holdfast.EngineUnavailable, match="0 of 1 replicas acknowledged") as refused:
                await acquiring
            assert clock.now() - began < UNAVAILABLE_AFTER + SLACK
            assert not isinstance(refused.value, holdfast.OutcomeUnknown)
            assert keys(master) == set()
            await ours.do((await ours.acquire(locks, elsewhere)).release)
            await ours.do((await ours.acquire(locks, name, replicas=0)).release)
        await ours.do((await ours.acquire(locks, name)).release)


async def test_renewals_count_only_with_the_replica(cluster: RedisCluster) -> None:
    """Leases without replicas on the same server are not delayed by leases with replicas."""
    master, other, _ = cluster.masters()
    names, (elsewhere, *_) = names_at(master, 4), names_at(other, 1)
    losses = LossReports()
    async with open_clients("sync") as ours, open_clients("async") as others:
        with_replica, without = [], []
        for each in (ours, others):
            locks = each.connect(cluster.url, ttl=TTL)
            with_replica.append(await each.acquire(locks, names.pop(), replicas=1, on_lost=losses))
            without.append(await each.acquire(locks, names.pop()))
            without.append(await each.acquire(locks, f"{{{elsewhere}}}:{each.api}", replicas=1))
        with frozen(cluster.replica_of(master)):
            await until(lambda: len(losses.reasons) == 2, within=TTL + SLACK)
            assert losses.reasons == ["unreachable", "unreachable"]
            await until(renewed(*without))
            assert [lease.held for lease in with_replica] == [False, False]
