"""Renewals in a cluster use one script per slot, and a dead shard never costs leases on other shards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import Found, RequestFailed
from holdfast.engines.redis.cluster.session import ClusterSession
from tests.redis.cluster.support import SLACK, errors, frozen, keys, move, names_at, on, slot_of
from tests.redis.support import TIMEOUT, keeper_of, make_attempt
from tests.servers.cluster import ClusterNode, RedisCluster
from tests.support.clients import APIS, Clients, open_clients
from tests.support.waiting import renewed, until

pytestmark = pytest.mark.needs_redis

#: Long enough although each round waits for the dead shard, and the scheduler may stall for longer than a request has.
TTL = 6.0
#: The number of renewal batches, each of which could wait for the dead shard.
TTLS = [TTL + number / 50 for number in range(6)]


def scripts(node: ClusterNode) -> int:
    """Returns the number of script calls on a server since CONFIG RESETSTAT."""
    calls: int = node.ask("INFO", "commandstats")["cmdstat_evalsha"]["calls"]
    return calls


@APIS
def test_renewal_runs_one_script_per_slot(api: str, cluster: RedisCluster) -> None:
    names = [f"{{{number}}}:{part}" for number in range(100) for part in range(3)]
    attempts = [make_attempt(name) for name in names]

    async def body(session: ClusterSession) -> None:
        for attempt in attempts:
            await session.acquire(attempt, TIMEOUT)
        await keeper_of(session).renew(attempts, 30.0, TIMEOUT)
        for node in cluster.masters():
            node.ask("CONFIG", "RESETSTAT")
        assert await keeper_of(session).renew(attempts, 60.0, TIMEOUT) == [Found.OURS] * 300
        slots = {slot_of(name) for name in names}
        for node in cluster.masters():
            assert scripts(node) == len([slot for slot in slots if cluster.master_of(slot) is node])
        cluster.master_of("{7}").ask("DEL", "{7}:0", "{7}:2")
        found = dict(zip(names, await keeper_of(session).renew(attempts, 90.0, TIMEOUT), strict=True))
        assert {name for name in names if found[name] is not Found.OURS} == {"{7}:0", "{7}:2"}

    on(cluster.url, api, body)


@APIS
def test_renewals_follow_moved_slots(api: str, cluster: RedisCluster) -> None:
    """A whole shard changes its master: each renewal is redirected, and all are resent together."""
    source = cluster.masters()[0]
    names = names_at(source, 30)
    attempts = [make_attempt(name) for name in names]

    async def body(session: ClusterSession) -> None:
        for attempt in attempts:
            await session.acquire(attempt, TIMEOUT)
        target = cluster.masters()[1]
        for slot in {slot_of(name) for name in names}:
            move(cluster, slot, target)
        before = errors(source, "MOVED")
        assert await keeper_of(session).renew(attempts, 60.0, TIMEOUT) == [Found.OURS] * 30
        assert errors(source, "MOVED") > before
        assert all(target.ask("PTTL", name) > 50_000 for name in names)

    on(cluster.url, api, body)


@APIS
def test_unserved_slot_affects_only_its_own_leases(api: str, cluster: RedisCluster) -> None:
    source = cluster.masters()[0]
    names = names_at(source, 3)
    attempts = [make_attempt(name) for name in names]

    async def body(session: ClusterSession) -> None:
        for attempt in attempts:
            await session.acquire(attempt, TIMEOUT)
        source.cluster("DELSLOTS", slot_of(names[0]))
        try:
            for _ in range(2):  # before and after the table is requested again
                found = await keeper_of(session).renew(attempts, 60.0, TIMEOUT)
                assert isinstance(found[0], RequestFailed)
                assert list(found[1:]) == [Found.OURS, Found.OURS]
        finally:
            source.cluster("ADDSLOTS", slot_of(names[0]))
        assert await keeper_of(session).renew(attempts, 60.0, TIMEOUT) == [Found.OURS] * 3

    on(cluster.url, api, body)


def test_silent_cluster_costs_one_timeout(cluster: RedisCluster) -> None:
    """Not one timeout per slot."""
    attempts = [make_attempt(f"job-{number}") for number in range(300)]

    async def body(session: ClusterSession) -> None:
        await session.ping(TIMEOUT)
        with frozen(cluster.nodes[0]), frozen(cluster.nodes[1]), frozen(cluster.nodes[2]):
            for _ in range(2):
                began = clock.now()
                found = await keeper_of(session).renew(attempts, 30.0, 0.2)
                assert clock.now() - began < 3 * 0.2 + SLACK
                assert all(isinstance(each, RequestFailed) for each in found)

    on(cluster.url, "sync", body)


async def hold_everywhere(ours: Clients, cluster: RedisCluster, count: int) -> dict[int, list[Any]]:
    """Acquires ``count`` leases on each master with many ttls; returns them by the port of the master."""
    locks = ours.connect(cluster.url, ttl=TTL)
    held: dict[int, list[Any]] = {}
    for node in cluster.masters():
        names = [f"{ours.api}:{{{name}}}" for name in names_at(node, count)]
        held[node.port] = [
            await ours.acquire(locks, name, ttl=TTLS[number % len(TTLS)]) for number, name in enumerate(names)
        ]
    return held


async def outlive(leases: dict[int, list[Any]], dead: int) -> None:
    """Checks that the leases at ``dead`` expire and all others are renewed beyond that time."""
    gone = leases.pop(dead)
    await until(lambda: all(lease.lost.is_set() for lease in gone), within=max(TTLS) + SLACK)
    assert {lease.lost_reason for lease in gone} == {"unreachable"}
    await until(renewed(*(lease for others in leases.values() for lease in others)))


async def test_frozen_shard_does_not_starve_the_others(cluster: RedisCluster) -> None:
    async with open_clients("sync") as ours, open_clients("async") as others:
        leases = [await hold_everywhere(each, cluster, 100) for each in (ours, others)]
        shard = cluster.masters()[0]
        with frozen(shard):
            await asyncio.gather(*(outlive(each, shard.port) for each in leases))


async def test_dead_shard_does_not_starve_the_others(start_cluster: Callable[..., RedisCluster]) -> None:
    """Neither the master nor its replica comes back. Then a second shard fails, and the cluster serves no slot."""
    cluster = start_cluster(node_timeout=5.0)  # a node that only stalls is not declared dead
    async with open_clients("sync") as ours, open_clients("async") as others:
        first, second, _ = cluster.masters()
        names = {node.port: names_at(node, 101)[-1] for node in (first, second)}
        leases = await hold_everywhere(ours, cluster, 100)
        cluster.replica_of(first).kill()
        first.kill()
        await outlive(leases, first.port)
        locks, hasty = others.connect(cluster.url), others.connect(cluster.url, unavailable_after=0.4)
        await others.do(locks.ping)
        await others.do((await others.acquire(locks, names[second.port])).release)
        with pytest.raises(holdfast.EngineUnavailable):
            await others.acquire(hasty, names[first.port])
        cluster.replica_of(second).kill()
        second.kill()
        with pytest.raises(holdfast.EngineUnavailable):
            await others.do(hasty.ping)


async def test_withdrawal_at_a_dead_shard_does_not_delay_the_others(cluster: RedisCluster) -> None:
    """Abandoned claims on reachable shards are withdrawn immediately."""
    first, second, _ = cluster.masters()
    (name,), (elsewhere,) = names_at(first, 1), names_at(second, 1)
    with holdfast.connect(cluster.url, ttl=30.0, request_timeout=0.2) as locks:
        locks.ping()
        core = locks._opened
        assert core is not None
        attempts = [make_attempt(name), make_attempt(elsewhere)]
        run(core.session.acquire(attempts[1], TIMEOUT))
        assert elsewhere in keys(second)
        with frozen(first):
            with core.lock:  # adds both before the watchdog runs
                for attempt in attempts:
                    core.watchdog.withdraw(attempt, clock.now() + attempt.claim.ttl)
            await until(lambda: elsewhere not in keys(second))
