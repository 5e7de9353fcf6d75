"""Batches of claims in a cluster are withdrawn or watched by server, wherever their slots are or move."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast._runtime.blocking import BLOCKING, BlockingWakeup, run
from holdfast.engines.base import ALL_NAMES, Claim, Found, RequestFailed
from holdfast.engines.redis.cluster.session import ClusterSession
from tests.redis.cluster.support import RUNTIMES, SLACK, engine_for, half_moved, move, names_at, on
from tests.redis.support import TIMEOUT, calls, full, make_claim
from tests.servers.cluster import RedisCluster
from tests.support.waiting import eventually, renewed

pytestmark = pytest.mark.needs_redis
_MANY: Final = 300


@contextmanager
def watchdog(url: str) -> Iterator[tuple[ClusterSession, BlockingWakeup]]:
    """A session that waits for hints, like that of the watchdog."""
    session, bell = engine_for(url).session(BLOCKING), BLOCKING.wakeup()
    run(session.doze(clock.now(), bell))
    try:
        yield session, bell
    finally:
        run(session.close())
        bell.close()


def hold(session: ClusterSession, *names: str) -> list[Claim]:
    claims = [make_claim(name) for name in names]
    for claim in claims:
        run(session.acquire(claim, TIMEOUT))
    return claims


@RUNTIMES
def test_claims_on_all_servers_are_withdrawn(colour: str, cluster: RedisCluster) -> None:
    async def body(session: ClusterSession) -> None:
        claims = [make_claim(f"job-{number}") for number in range(_MANY)]
        for claim in claims[1:]:
            await session.acquire(claim, TIMEOUT)
        assert await session.withdraw(claims, TIMEOUT) == [Found.GONE, *[Found.OURS] * (_MANY - 1)]
        for claim in (claims[0], claims[-1]):
            tombstone = f"holdfast_lock:{{{claim.name}}}:gone:{claim.owner}"
            assert cluster.master_of(claim.name).ask("EXISTS", tombstone) == 1

    on(cluster.url, colour, body)
    assert all(not node.ask("KEYS", "job-*") for node in cluster.masters())


@RUNTIMES
def test_withdrawals_follow_slots_that_have_moved(colour: str, cluster: RedisCluster) -> None:
    async def body(session: ClusterSession) -> None:
        names = [name for node in cluster.masters() for name in names_at(node, 2)]
        claims = [make_claim(name) for name in names]
        for claim in claims:
            await session.acquire(claim, TIMEOUT)
        move(cluster, names[0])
        with half_moved(cluster, names[2]) as slot:
            slot.carry_all()
            found = await session.withdraw(claims, TIMEOUT)
            # Some of its keys never existed: such a script runs on neither server until the slot has arrived.
            assert isinstance(found[2], RequestFailed | Found)
        assert [found[at] for at in (0, 1, 3, 4, 5)] == [Found.OURS] * 5
        again = await session.withdraw([claims[2]], TIMEOUT)
        assert again[0] in (Found.OURS, Found.GONE)

    on(cluster.url, colour, body)


def test_frozen_server_delays_only_its_own_withdrawals_by_one_timeout(cluster: RedisCluster) -> None:
    frozen, *others = cluster.masters()
    with watchdog(cluster.url) as (session, _):
        theirs = hold(session, *names_at(frozen, 3))
        ours = hold(session, *(name for node in others for name in names_at(node, 3)))
        frozen.pause()
        began = time.monotonic()
        found = run(session.withdraw([*theirs, *ours], 0.5))
        assert time.monotonic() - began < 0.5 + SLACK
        frozen.resume()
        assert [type(each) for each in found[:3]] == [RequestFailed] * 3
        assert found[3:] == [Found.OURS] * 6


def test_watch_costs_one_command_and_losses_on_any_server_are_pushed(cluster: RedisCluster) -> None:
    with watchdog(cluster.url) as (session, bell):
        names = [names_at(node, 1)[0] for node in cluster.masters()]
        claims = hold(session, *names)
        assert run(session.watch(claims, TIMEOUT)) == [Found.OURS] * 3  # connects
        for node in cluster.masters():
            node.ask("CONFIG", "RESETSTAT")
        assert run(session.watch(claims, TIMEOUT)) == [Found.OURS] * 3
        for node in cluster.masters():
            assert calls(node)["hexists"] == 1
            assert not {"client|caching", "evalsha", "exists"} & calls(node).keys()
        for name in names:
            cluster.master_of(name).ask("DEL", name)
            assert run(session.doze(clock.now() + TIMEOUT, bell)) == {name}
        assert run(session.watch(claims, TIMEOUT)) == [Found.GONE] * 3


def test_hold_whose_slot_moves_is_watched_at_its_new_server(cluster: RedisCluster) -> None:
    with watchdog(cluster.url) as (session, bell):
        (claim,) = hold(session, "job")
        assert run(session.watch([claim], TIMEOUT)) == [Found.OURS]
        move(cluster, "job")
        assert run(session.watch([claim], TIMEOUT)) == [Found.OURS]
        while (suspects := run(session.doze(clock.now(), bell))) and suspects != ALL_NAMES:
            pass  # moving a slot deletes its keys at the source
        cluster.master_of("job").ask("DEL", "job")
        assert run(session.doze(clock.now() + TIMEOUT, bell))


def test_hold_that_moved_before_its_slot_is_watched_again_soon(cluster: RedisCluster) -> None:
    with watchdog(cluster.url) as (session, bell):
        (claim,) = hold(session, "job")
        with half_moved(cluster, "job") as slot:
            slot.carry_all()
            assert run(session.watch([claim], TIMEOUT)) == [Found.OURS]
            assert "job" in run(session.doze(clock.now() + TIMEOUT, bell)), "the key is not tracked there"


def test_lease_survives_servers_that_refuse_new_connections(start_cluster: Callable[..., RedisCluster]) -> None:
    cluster = start_cluster("maxclients 60")
    with holdfast.connect(cluster.url, ttl=1.5) as locks:
        lease = locks.lock("job").acquire()
        with full(cluster.master_of("job")):
            for _ in range(2):
                eventually(renewed(lease))
        lease.release()
