"""Registers where servers fail over, slots move, replicas lag, or an ACL refuses client tracking."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.cluster.engine import ClusterEngine
from holdfast.engines.registers import Cell, Stale
from tests.redis.cluster.support import NO_TRACKING, half_moved, move, user
from tests.redis.support import command
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication
from tests.servers.sentinel import SentinelSet
from tests.support.register_contract import APIS, CASES, TIMEOUT, Case, World, check, engine_at, name_of

sync_and_async = pytest.mark.parametrize("api", APIS)
WAKE_UPS = [case for case in CASES if "wake" in name_of(case) or "woken" in name_of(case)]
#: Rights that make listeners use the channel, and poll.
FALLBACKS = {"channel": ("-client|tracking",), "polling": ("-client|tracking", "-subscribe", "-ssubscribe")}


@sync_and_async
@pytest.mark.parametrize("fallback", FALLBACKS)
@pytest.mark.parametrize("case", WAKE_UPS, ids=name_of)
def test_wake_ups_without_client_tracking(redis_server: RedisServer, case: Case, fallback: str, api: str) -> None:
    rights = ("reset", "on", ">pw", "~*", "&*", "+@all", *FALLBACKS[fallback])
    command(redis_server, "ACL", "SETUSER", "app", *rights)
    check(case, engine_at(redis_server.url_as("app", "pw")), api)


@sync_and_async
def test_wake_ups_in_a_cluster_without_client_tracking(redis_cluster: RedisCluster, api: str) -> None:
    with user(redis_cluster, *NO_TRACKING) as url:
        for case in WAKE_UPS:
            check(case, engine_at(url), api)


@sync_and_async
def test_registers_and_listeners_follow_a_slot_that_moves(redis_cluster: RedisCluster, api: str) -> None:
    engine = engine_at(redis_cluster.url)
    assert isinstance(engine, ClusterEngine)

    async def case(world: World) -> None:
        key = world.key(durable=True)
        guard, version = await world.enqueue(key, "=w1:W")
        listener = world.others.listener(key, "w1")
        await listener.arm()
        for each in (version, version + 1):
            move(redis_cluster, key.name)
            await world.others.look(key, "w1", TIMEOUT)  # the waiter learns where the slot is
            for _ in range(2):
                await listener.wait(world.now() + 0.1)
            assert await world.registers.store(key, guard, each, TIMEOUT, value=b"%d" % each, wake=["w1"]) == each + 1
            await world.is_woken(listener)
            assert (await world.load(key, guard)).value == b"%d" % each
        listener.close()

    check(case, engine, api)


@sync_and_async
def test_store_in_a_slot_that_is_half_moved_fails_and_can_be_repeated(redis_cluster: RedisCluster, api: str) -> None:
    async def case(world: World) -> None:
        key = world.key(durable=True)
        guard, _ = await world.enter(key)
        with half_moved(redis_cluster, key.name) as slot:
            slot.carry(f"holdfast_register:{{{key.name}}}:condition%3A")
            with pytest.raises(RequestFailed):
                await world.registers.store(key, guard, 0, TIMEOUT, value=b"one")
            slot.finish()
        assert await world.registers.store(key, guard, 0, TIMEOUT, value=b"one") in (1, Stale(guard.token, 1))
        assert await world.registers.peek(key, TIMEOUT) == Cell(b"one", "", 1)

    check(case, engine_at(redis_cluster.url), api)


async def answered(world: World, request: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """The answer to a request that is repeated until a server gives one, as the core does."""
    until = world.now() + 20.0
    while True:
        try:
            return await request()
        except RequestFailed:
            assert world.now() < until, "no server answers"


@sync_and_async
def test_acknowledged_state_survives_a_failover(start_sentinels: Callable[..., SentinelSet], api: str) -> None:
    sentinels = start_sentinels()

    async def case(world: World) -> None:
        key = world.key("monitor", durable=True)
        guard, _ = await world.enter(key)
        assert await world.registers.store(key, guard, 0, TIMEOUT, value=b"one", replicas=2) == 1
        listener = world.others.listener(key, None)
        await listener.arm()
        old = sentinels.kill_master()
        await world.is_woken(listener)
        sentinels.wait_for_new_master(old)

        cell = await answered(world, lambda: world.registers.load(key, guard, TIMEOUT))
        assert cell == Cell(b"one", "", 1), "its guard is there too"
        assert await world.registers.store(key, guard, 1, TIMEOUT, value=b"two") == 2
        listener.close()

    check(case, engine_at(sentinels.url), api)


@sync_and_async
def test_store_that_too_few_replicas_have_fails_also_when_it_is_repeated(
    start_replication: Callable[..., Replication], api: str
) -> None:
    pair = start_replication(1)

    async def case(world: World) -> None:
        key = world.key("monitor", durable=True)
        guard, _ = await world.enter(key)
        assert await world.registers.store(key, guard, 0, TIMEOUT, value=b"one", replicas=1) == 1
        pair.links[0].black_hole_all()
        for _ in range(2):
            with pytest.raises(RequestFailed, match="0 of 1") as failed:
                await world.registers.store(key, guard, 1, 0.5, value=b"two", replicas=1)
            assert failed.value.may_have_happened
        pair.links[0].heal()
        assert await world.registers.store(key, guard, 1, TIMEOUT, value=b"two", replicas=1) == Stale(guard.token, 2)

    check(case, engine_at(pair.url), api)
