"""A server leaves the cluster, or a slot leaves a server: no connection to the former server stays open, and losses are
reported from the new one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast._runtime import clock
from holdfast.engines.redis.cluster.session import ClusterSession
from holdfast.testing.conformance.opening import Api
from tests.redis.cluster.support import errors, half_moved, names_at, on
from tests.redis.support import TIMEOUT, connections, make_attempt
from tests.servers.cluster import ClusterNode, RedisCluster
from tests.support.clients import APIS, LossReports, open_clients
from tests.support.waiting import eventually, until

pytestmark = pytest.mark.needs_redis

StartCluster = Callable[..., RedisCluster]

TTL = 60.0
#: Long before the next renewal.
EARLY = TTL / 6


def hand_over(cluster: RedisCluster, master: ClusterNode) -> None:
    """The replica takes over from ``master``, which continues as its replica and closes no connection."""
    cluster.replica_of(master).cluster("FAILOVER")
    eventually(lambda: all(node.port != master.port for node in cluster.masters()), 20.0)
    cluster.wait_until_ok()


def test_no_connection_stays_open_to_a_server_that_has_left(start_cluster: StartCluster) -> None:
    cluster = start_cluster(node_timeout=5.0)  # no automatic failover
    master, *others = cluster.masters()
    url = f"redis+cluster://{','.join(node.address for node in others)}?client_name=ours"
    (name,) = names_at(master, 1)
    for api in ("sync", "async"):
        master = leaves(cluster, master, api, url, name)


def leaves(cluster: RedisCluster, master: ClusterNode, api: str, url: str, name: str) -> ClusterNode:
    """A session drops ``master`` after its replica has taken over; returns the replica."""

    async def body(session: ClusterSession) -> None:
        attempt = make_attempt(name)
        await session.acquire(attempt, TIMEOUT)
        await session.renew(attempt, 30.0, TIMEOUT)
        assert connections(master, "ours")() > 0
        hand_over(cluster, master)
        deadline = clock.now() + EARLY
        while connections(master, "ours")():
            # Redirected, then the slot table is requested, perhaps from a node that does not know the change yet.
            assert (await session.inspect(name, TIMEOUT)).holders
            assert clock.now() < deadline
        await session.release(attempt, TIMEOUT)

    on(url, api, body)
    return cluster.master_of(name)


@APIS
async def test_break_at_the_new_server_of_a_moved_slot_is_reported(api: Api, cluster: RedisCluster) -> None:
    """The loss is reported long before the next renewal. During the move the lock was renewed at a server that did not
    have it yet, where nothing can be tracked."""
    losses = LossReports()
    async with open_clients(api) as ours:
        locks = ours.connect(cluster.url, ttl=TTL)
        lease = await ours.acquire(locks, "job", on_lost=losses)
        await ours.do(lease.renew)
        core = locks._opened
        assert core is not None
        with core.lock:  # as if it were due: from now on the watchdog tracks it
            for grant in core.grants():
                grant.due = 0.0
            core.watchdog._earliest = 0.0
            core.watchdog._look_by(float("-inf"))
        with half_moved(cluster, "job") as slot:
            await until(lambda: slot.source.ask("INFO", "stats")["tracking_total_keys"] > 0, within=EARLY)
            asked = errors(slot.source, "ASK")
            slot.carry_all()
            await until(lambda: errors(slot.source, "ASK") > asked, within=EARLY)
            slot.finish()
            await until(lambda: slot.target.ask("INFO", "stats")["tracking_total_keys"] > 0, within=EARLY)
            slot.target.ask("DEL", "job")
            await until(lambda: losses.reasons == ["broken"], within=EARLY)
        assert not lease.held
