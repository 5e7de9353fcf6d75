"""Operators of a cluster list locks of all shards, break them, and ping."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.testing.conformance.opening import Api
from tests.redis.cluster.support import SLACK, frozen, move, names_at
from tests.servers.cluster import RedisCluster
from tests.support.clients import APIS, Clients, LossReports, open_clients
from tests.support.waiting import until

pytestmark = pytest.mark.needs_redis

#: Odd names that still share one slot with their side keys.
ODD = ["{a}b", "a{b}{", "a}b{c}", "{{x}}", "*?[x]", "ü{ß}", "with space", "nul\0", "new\nline"]


async def listed(ours: Clients, locks: holdfast.Client, prefix: str = "") -> set[str]:
    if ours.api == "sync":
        found = await ours.do(lambda: list(locks.locks(prefix)))
        return {state.name for state in found}
    states = locks.locks(prefix)
    return {state.name async for state in states}  # type: ignore[attr-defined]


@APIS
async def test_locks_of_all_shards_are_listed(api: Api, cluster: RedisCluster) -> None:
    names = {name for master in cluster.masters() for name in names_at(master, 3)}
    async with open_clients(api) as ours:
        locks = ours.connect(cluster.url)
        leases = [await ours.acquire(locks, name) for name in names]
        assert await listed(ours, locks) == names
        some = next(iter(names))
        move(cluster, some)
        assert await listed(ours, locks) == names
        assert await listed(ours, locks, some) >= {some}
        assert await listed(ours, locks, "nothing") == set()
        for lease in leases:
            await ours.do(lease.release)
        assert await listed(ours, locks) == set()


@APIS
async def test_inspect_and_break_work_on_every_shard(api: Api, cluster: RedisCluster) -> None:
    losses = LossReports()
    async with open_clients(api) as ours:
        locks = ours.connect(cluster.url)
        lease = await ours.acquire(locks, "job", ttl=3.0, on_lost=losses)
        move(cluster, "job")
        state = await ours.do(lambda: locks.inspect("job"))
        assert [holder.owner for holder in state.holders] == [lease.owner]
        assert state.token == lease.token
        assert await ours.do(lambda: locks.break_("job"))
        await until(lambda: losses.reasons, within=1.0 + SLACK)  # at the latest with the next renewal
        assert losses.reasons == ["broken"]
        assert (await ours.acquire(locks, "job")).token > lease.token
        assert not await ours.do(lambda: locks.break_("free"))


@APIS
async def test_odd_names_can_be_locked_and_listed(api: Api, cluster: RedisCluster) -> None:
    async with open_clients(api) as ours:
        locks = ours.connect(cluster.url)
        for name in ODD:
            lease = await ours.acquire(locks, name)
            assert await ours.caller().do(locks.lock(name).try_acquire) is None
            assert await listed(ours, locks) == {name}
            await ours.do(lease.renew)
            await ours.do(lease.release)


@APIS
async def test_ping_needs_a_majority_of_masters(api: Api, cluster: RedisCluster) -> None:
    """With most masters reachable the cluster serves, though not every lock; otherwise it does not serve."""
    first, second, _ = cluster.masters()
    (name,) = names_at(first, 1)
    async with open_clients(api) as ours:
        locks = ours.connect(cluster.url, request_timeout=0.2)
        hasty = ours.connect(cluster.url, request_timeout=0.2, unavailable_after=0.3)
        with frozen(first):
            await ours.do(locks.ping)
            with pytest.raises(holdfast.EngineUnavailable):
                await ours.do(lambda: hasty.inspect(name))
            await ours.do(locks.ping)
            with frozen(second), pytest.raises(holdfast.EngineUnavailable):
                await ours.do(hasty.ping)
        await ours.do(locks.ping)
        assert (await ours.do(lambda: locks.inspect(name))).holders == ()
