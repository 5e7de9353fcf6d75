"""The list of registers with waiters, by which inspect finds the conditions of a lock."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.engines.registers import RegisterKey
from tests.redis.support import command
from tests.servers.redis import RedisServer
from tests.support.register_contract import TIMEOUT, World, check, engine_at

_DAY = 86_400_000


def list_of(key: RegisterKey) -> str:
    return f"holdfast_register:{{{key.name}}}:"


def test_a_register_is_listed_as_long_as_it_has_waiters(redis_server: RedisServer) -> None:
    client = redis_server.client()

    async def case(world: World) -> None:
        key = world.key("condition:full")
        guard, version = await world.enqueue(key, "full=w1:W")
        assert client.zrange(list_of(key), 0, -1) == [b"condition%3Afull"]
        assert 29 * _DAY < client.pttl(list_of(key)) <= 30 * _DAY
        assert isinstance(await world.registers.store(key, guard, version, TIMEOUT, queue=""), int)
        assert client.exists(list_of(key)) == 0

    check(case, engine_at(redis_server.url), "sync")


def test_a_look_that_keeps_the_register_keeps_it_listed(redis_server: RedisServer) -> None:
    """A waiter may wait for longer than token_ttl while nothing is stored."""
    client = redis_server.client()

    async def case(world: World) -> None:
        key = world.key("condition:full")
        await world.enqueue(key, "full=w1:W")
        client.delete(list_of(key))
        await world.registers.look(key, "w1", TIMEOUT)
        assert client.exists(list_of(key)) == 0, "no look writes more than it must"
        client.pexpire(f"{list_of(key)}condition%3Afull", _DAY)
        await world.registers.look(key, "w1", TIMEOUT)
        assert client.zrange(list_of(key), 0, -1) == [b"condition%3Afull"]
        assert client.pttl(list_of(key)) > 29 * _DAY

    check(case, engine_at(redis_server.url), "sync")


def test_registers_that_have_expired_leave_the_list_with_the_next_one(redis_server: RedisServer) -> None:
    client = redis_server.client()

    async def case(world: World) -> None:
        key = world.key("condition:full")
        client.zadd(list_of(key), {"condition%3Aold": 1, "condition%3Anew": 4e15})
        await world.enqueue(key, "full=w1:W")
        assert sorted(client.zrange(list_of(key), 0, -1)) == [b"condition%3Afull", b"condition%3Anew"]

    check(case, engine_at(redis_server.url), "sync")


def test_users_data_is_not_listed_and_has_no_list_that_expires(redis_server: RedisServer) -> None:
    client = redis_server.client()

    async def case(world: World) -> None:
        key = world.key("monitor", durable=True)
        await world.enqueue(key, "full=w1:W")
        assert client.exists(list_of(key)) == 0

    check(case, engine_at(redis_server.url), "sync")


@pytest.mark.parametrize("foreign", ["a list of another type", "queues that are none", "waiters of another type"])
def test_inspect_shows_the_lock_beside_registers_that_are_not_ours(redis_server: RedisServer, foreign: str) -> None:
    client = redis_server.client()
    place = "holdfast_register:{orders}:"
    if foreign == "a list of another type":
        client.set(place, "x")
        client.set(f"{place}monitor", "x")
    else:
        client.zadd(place, {"x": 4e15})
        is_queue = foreign == "waiters of another type"
        client.hset(f"{place}x", "queue", "full=w1:W" if is_queue else b"\xff;=:")
        client.set("holdfast_register_present:{orders}:x", "x")
    with holdfast.connect(redis_server.url) as locks, locks.lock("orders") as lease:
        state = locks.inspect("orders")
        assert [holder.owner for holder in state.holders] == [lease.owner]
        assert state.conditions == {}


@pytest.mark.parametrize("denied", ["zrangebyscore", "hmget", "exists", "~holdfast_register"])
def test_inspect_shows_the_lock_to_a_user_without_the_rights_for_registers(
    redis_server: RedisServer, denied: str
) -> None:
    client = redis_server.client()
    client.zadd("holdfast_register:{orders}:", {"condition%3Afull": 4e15})
    client.hset("holdfast_register:{orders}:condition%3Afull", "queue", "full=w1:W")
    client.zadd("holdfast_register_present:{orders}:condition%3Afull", {"w1": 4e15})
    with holdfast.connect(redis_server.url) as locks:
        assert locks.inspect("orders").conditions == {"full": 1}
    rights = ["~orders", "~holdfast_[oqhl]*", "~redisson*", "+@all"] if denied[0] == "~" else ["~*", "+@all"]
    if denied[0] != "~":
        rights.append(f"-{denied}")
    command(redis_server, "ACL", "SETUSER", "app", "reset", "on", ">pw", "&*", *rights)
    with holdfast.connect(redis_server.url) as full, full.lock("orders") as lease:
        with holdfast.connect(redis_server.url_as("app", "pw")) as locks:
            state = locks.inspect("orders")
        assert [holder.owner for holder in state.holders] == [lease.owner]
        assert state.conditions == {}
