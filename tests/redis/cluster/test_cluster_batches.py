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
from holdfast.engines.base import ALL_NAMES, Found, RequestFailed
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.cluster.keeper import ClusterKeeper
from holdfast.engines.redis.cluster.session import ClusterSession
from tests.redis.cluster.support import SLACK, engine_for, half_moved, move, names_at, on
from tests.redis.support import TIMEOUT, calls, full, keeper_of, make_attempt
from tests.servers.cluster import RedisCluster
from tests.support.clients import APIS
from tests.support.waiting import eventually, renewed

pytestmark = pytest.mark.needs_redis
_MANY: Final = 300


@contextmanager
def watchdog(url: str) -> Iterator[tuple[ClusterSession, ClusterKeeper, BlockingWakeup]]:
    """A session, and a keeper that waits for hints first, as the watchdog does."""
    engine, wakeup = engine_for(url), BLOCKING.wakeup()
    session, keeper = engine.session(BLOCKING), engine.keeper(BLOCKING)
    run(keeper.wait_for_hints(clock.now(), wakeup))
    try:
        yield session, keeper, wakeup
    finally:
        run(session.close())
        run(keeper.close())
        wakeup.close()


def hold(session: ClusterSession, *names: str) -> list[RedlockAttempt]:
    attempts = [make_attempt(name) for name in names]
    for attempt in attempts:
        run(session.acquire(attempt, TIMEOUT))
    return attempts


@APIS
def test_claims_on_all_servers_are_withdrawn(api: str, cluster: RedisCluster) -> None:
    async def body(session: ClusterSession) -> None:
        attempts = [make_attempt(f"job-{number}") for number in range(_MANY)]
        for attempt in attempts[1:]:
            await session.acquire(attempt, TIMEOUT)
        assert await keeper_of(session).withdraw(attempts, TIMEOUT) == [Found.GONE, *[Found.OURS] * (_MANY - 1)]
        for attempt in (attempts[0], attempts[-1]):
            tombstone = f"holdfast_lock:{{{attempt.claim.name}}}:gone:{attempt.owner}"
            assert cluster.master_of(attempt.claim.name).ask("EXISTS", tombstone) == 1

    on(cluster.url, api, body)
    assert all(not node.ask("KEYS", "job-*") for node in cluster.masters())


@APIS
def test_withdrawals_follow_slots_that_have_moved(api: str, cluster: RedisCluster) -> None:
    async def body(session: ClusterSession) -> None:
        names = [name for node in cluster.masters() for name in names_at(node, 2)]
        attempts = [make_attempt(name) for name in names]
        for attempt in attempts:
            await session.acquire(attempt, TIMEOUT)
        move(cluster, names[0])
        with half_moved(cluster, names[2]) as slot:
            slot.carry_all()
            found = await keeper_of(session).withdraw(attempts, TIMEOUT)
            # Some of its keys never existed: such a script runs on neither server until the slot has arrived.
            assert isinstance(found[2], RequestFailed | Found)
        assert [found[at] for at in (0, 1, 3, 4, 5)] == [Found.OURS] * 5
        again = await keeper_of(session).withdraw([attempts[2]], TIMEOUT)
        assert again[0] in (Found.OURS, Found.GONE)

    on(cluster.url, api, body)


def test_frozen_server_delays_only_its_own_withdrawals_by_one_timeout(cluster: RedisCluster) -> None:
    frozen, *others = cluster.masters()
    with watchdog(cluster.url) as (session, keeper, _):
        theirs = hold(session, *names_at(frozen, 3))
        ours = hold(session, *(name for node in others for name in names_at(node, 3)))
        frozen.pause()
        began = time.monotonic()
        found = run(keeper.withdraw([*theirs, *ours], 0.5))
        assert time.monotonic() - began < 0.5 + SLACK
        frozen.resume()
        assert [type(each) for each in found[:3]] == [RequestFailed] * 3
        assert found[3:] == [Found.OURS] * 6


def test_watch_costs_one_command_and_losses_on_any_server_are_pushed(cluster: RedisCluster) -> None:
    with watchdog(cluster.url) as (session, keeper, wakeup):
        names = [names_at(node, 1)[0] for node in cluster.masters()]
        attempts = hold(session, *names)
        assert run(keeper.watch(attempts, TIMEOUT)) == [Found.OURS] * 3  # connects
        for node in cluster.masters():
            node.ask("CONFIG", "RESETSTAT")
        assert run(keeper.watch(attempts, TIMEOUT)) == [Found.OURS] * 3
        for node in cluster.masters():
            assert calls(node)["hexists"] == 1
            assert not {"client|caching", "evalsha", "exists"} & calls(node).keys()
        for name in names:
            cluster.master_of(name).ask("DEL", name)
            assert run(keeper.wait_for_hints(clock.now() + TIMEOUT, wakeup)) == {name}
        assert run(keeper.watch(attempts, TIMEOUT)) == [Found.GONE] * 3


def test_hold_whose_slot_moves_is_watched_at_its_new_server(cluster: RedisCluster) -> None:
    with watchdog(cluster.url) as (session, keeper, wakeup):
        (attempt,) = hold(session, "job")
        assert run(keeper.watch([attempt], TIMEOUT)) == [Found.OURS]
        move(cluster, "job")
        assert run(keeper.watch([attempt], TIMEOUT)) == [Found.OURS]
        while (suspects := run(keeper.wait_for_hints(clock.now(), wakeup))) and suspects != ALL_NAMES:
            pass  # moving a slot deletes its keys at the source
        cluster.master_of("job").ask("DEL", "job")
        assert run(keeper.wait_for_hints(clock.now() + TIMEOUT, wakeup))


def test_hold_that_moved_before_its_slot_is_watched_again_soon(cluster: RedisCluster) -> None:
    with watchdog(cluster.url) as (session, keeper, wakeup):
        (attempt,) = hold(session, "job")
        with half_moved(cluster, "job") as slot:
            slot.carry_all()
            assert run(keeper.watch([attempt], TIMEOUT)) == [Found.OURS]
            assert "job" in run(keeper.wait_for_hints(clock.now() + TIMEOUT, wakeup)), "the key is not tracked there"


def test_lease_survives_servers_that_refuse_new_connections(start_cluster: Callable[..., RedisCluster]) -> None:
    cluster = start_cluster("maxclients 60")
    with holdfast.connect(cluster.url, ttl=1.5) as locks:
        lease = locks.lock("job").acquire()
        with full(cluster.master_of("job")):
            for _ in range(2):
                eventually(renewed(lease))
        lease.release()
