"""Lost requests and replies, late duplicates, refusals and full servers: what becomes of registers and transfers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

import pytest

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis import scripts
from holdfast.engines.redis.scripts import Script
from holdfast.engines.registers import Cell, Look, RegisterKey, Stale, Standing
from holdfast.errors import EngineRefused
from holdfast.testing.faults import Occasion, Rule
from holdfast.testing.proxy import FaultProxy
from tests.redis.support import command
from tests.servers.redis import RedisServer
from tests.support.register_contract import APIS, TIMEOUT, World, check, engine_at

#: A request whose reply does not come fails after this long (s). It must have been sent by then, also if the machine
#: stalls while the client connects.
_SHORT: Final = 0.6

LOSSES: Final[dict[str, Callable[[Occasion], Rule]]] = {
    "reply_lost_by_reset": Occasion.drop_reply_and_reset,
    "reply_lost_in_a_black_hole": Occasion.black_hole,
    "request_lost_by_reset": Occasion.drop_request_and_reset,
    "request_lost_in_a_black_hole": Occasion.drop_request_black_hole,
}
every_loss = pytest.mark.parametrize("loss", LOSSES)
sync_and_async = pytest.mark.parametrize("api", APIS)


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy(redis_server.host, redis_server.port) as started:
        yield started


Request = Callable[[float], Coroutine[Any, Any, Any]]


async def lost(proxy: FaultProxy, script: Script, loss: str, request: Request) -> Any:
    """The answer to a request that is repeated, because the first one, or its reply, was lost."""
    rule = LOSSES[loss](proxy.on(script=script))
    with pytest.raises(RequestFailed) as failed:
        await request(_SHORT)
    assert rule.fired
    assert failed.value.may_have_happened
    return await request(TIMEOUT)


@sync_and_async
@every_loss
def test_repeated_load_reads_the_same_and_the_guard_is_set(proxy: FaultProxy, api: str, loss: str) -> None:
    async def case(world: World) -> None:
        key = world.key()
        first, _ = await world.enter(key)
        guard = await world.hold(key)
        assert (
            await lost(proxy, scripts.LOAD, loss, lambda timeout: world.registers.load(key, guard, timeout)) == Cell()
        )
        assert await world.others.store(key, first, 0, TIMEOUT, value=b"late") == Stale(guard.token, 0)

    check(case, engine_at(proxy.url), api)


@sync_and_async
@every_loss
def test_repeated_store_takes_effect_once(proxy: FaultProxy, api: str, loss: str) -> None:
    async def case(world: World) -> None:
        key = world.key()
        guard, _ = await world.enter(key)

        async def store(timeout: float) -> int | Stale:
            return await world.registers.store(key, guard, 0, timeout, value=b"one", queue="=w1:W", join="w1")

        answer = await lost(proxy, scripts.STORE, loss, store)
        assert answer == (Stale(guard.token, 1) if loss.startswith("reply") else 1)
        assert await world.others.peek(key, TIMEOUT) == Cell(b"one", "=w1:W", 1, frozenset({"w1"}))

    check(case, engine_at(proxy.url), api)


@sync_and_async
@every_loss
def test_repeated_swap_takes_effect_once(proxy: FaultProxy, api: str, loss: str) -> None:
    async def case(world: World) -> None:
        key = world.key("barrier")
        cell = await lost(proxy, scripts.SWAP, loss, lambda timeout: world.registers.swap(key, 0, b"mine", timeout))
        assert cell == Cell(b"mine", "", 1)

    check(case, engine_at(proxy.url), api)


@sync_and_async
def test_repeated_look_finds_the_same(proxy: FaultProxy, api: str) -> None:
    async def case(world: World) -> None:
        key = world.key()
        await world.enqueue(key, "=w1:W")
        for _ in range(2):  # the second one has seen the queue before
            for loss in ("reply_lost_by_reset", "request_lost_by_reset"):
                look = await lost(proxy, scripts.LOOK, loss, lambda timeout: world.registers.look(key, "w1", timeout))
                assert look == Look(Standing.WAITING)

    check(case, engine_at(proxy.url), api)


@sync_and_async
def test_store_that_arrives_late_is_refused(proxy: FaultProxy, redis_server: RedisServer, api: str) -> None:
    """Late store: the copy of a wait's store arrives after the store that ended the same critical section."""

    async def case(world: World) -> None:
        key = world.key()
        guard, _ = await world.enter(key)
        proxy.on(script=scripts.STORE).duplicate()
        assert await world.registers.store(key, guard, 0, TIMEOUT, value=b"old", queue="=w1:W", wake=["w1"]) == 1
        assert await world.registers.store(key, guard, 1, TIMEOUT, value=b"new", queue="") == 2
        (reply,) = proxy.release_duplicates()
        assert b"\r\n2\r\n" in reply, "refused, with the present version"
        assert await world.registers.peek(key, TIMEOUT) == Cell(b"new", "", 2)

    check(case, engine_at(proxy.url), api)


@sync_and_async
def test_load_that_arrives_late_does_not_shut_out_a_later_holder(proxy: FaultProxy, api: str) -> None:
    async def case(world: World) -> None:
        key = world.key()
        proxy.on(script=scripts.LOAD).duplicate()
        await world.enter(key)
        guard, _ = await world.enter(key)
        proxy.release_duplicates()
        assert await world.registers.store(key, guard, 0, TIMEOUT, value=b"mine") == 1

    check(case, engine_at(proxy.url), api)


async def reconnected(world: World) -> None:
    """The first request notices that the connection is lost."""
    with contextlib.suppress(RequestFailed):
        await world.registers.peek(world.key(), TIMEOUT)
    await world.registers.peek(world.key(), TIMEOUT)


@sync_and_async
def test_listener_returns_when_its_connection_is_lost_and_arms_again(proxy: FaultProxy, api: str) -> None:
    async def case(world: World) -> None:
        key = world.key()
        guard, version = await world.enqueue(key, "=w1:W")
        listener = world.others.listener(key, "w1")
        await listener.arm()
        proxy.cut_all()
        await world.is_woken(listener)
        await world.is_not_woken(listener)
        await reconnected(world)
        assert await world.registers.store(key, guard, version, TIMEOUT, wake=["w1"]) == version + 1
        await world.is_woken(listener)
        proxy.refuse()
        proxy.cut_all()
        for _ in range(2):
            await listener.wait(world.now() + 0.05)  # does not raise
        proxy.accept()
        listener.close()
        await reconnected(world)

    check(case, engine_at(proxy.url), api)


@sync_and_async
def test_scripts_that_the_server_has_forgotten_are_sent_again(redis_server: RedisServer, api: str) -> None:
    async def case(world: World) -> None:
        key = world.key()
        guard, _ = await world.enter(key)
        redis_server.client().script_flush()
        assert await world.registers.store(key, guard, 0, TIMEOUT, value=b"one") == 1
        assert (await world.registers.peek(key, TIMEOUT)).value == b"one"

    check(case, engine_at(redis_server.url), api)


@sync_and_async
def test_key_of_another_type_is_refused_and_named(redis_server: RedisServer, api: str) -> None:
    async def case(world: World) -> None:
        key = world.key("monitor")
        guard, place = await world.hold(key), f"holdfast_register:{{{key.name}}}:monitor"
        redis_server.client().set(place, "x")
        for request in (
            world.registers.load(key, guard, TIMEOUT),
            world.registers.store(key, guard, 0, TIMEOUT, value=b"x"),
            world.registers.look(key, "w1", TIMEOUT),
            world.registers.peek(key, TIMEOUT),
            world.registers.swap(key, 0, b"x", TIMEOUT),
        ):
            with pytest.raises(EngineRefused, match="another type") as refused:
                await request
            assert place in str(refused.value)
        assert redis_server.client().get(place) == b"x"

    check(case, engine_at(redis_server.url), api)


def test_server_without_memory_changes_nothing(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()

    async def case(world: World) -> None:
        key, fresh = world.key(), world.key("barrier")
        guard, _ = await world.enter(key)
        server.client().config_set("maxmemory", 1)
        for request in (
            world.registers.load(key, guard, TIMEOUT),
            world.registers.store(key, guard, 0, TIMEOUT, value=b"x", join="w1", wake=["w1"]),
            world.registers.swap(fresh, 0, b"x", TIMEOUT),
        ):
            with pytest.raises(RequestFailed, match="OOM") as failed:
                await request
            assert not failed.value.may_have_happened
        server.client().config_set("maxmemory", 0)
        assert await world.load(key, guard) == Cell()
        assert await world.registers.peek(fresh, TIMEOUT) == Cell()

    check(case, engine_at(server.url), "sync")


def test_registers_of_users_data_do_not_expire_and_others_do(redis_server: RedisServer) -> None:
    client = redis_server.client()

    async def case(world: World) -> None:
        lasting, passing = world.key("monitor", durable=True), world.key("condition:full")
        for key in (lasting, passing):
            guard, _ = await world.enter(key)
            assert await world.registers.store(key, guard, 0, TIMEOUT, queue="=w1:W", join="w1", wake=["w1"]) == 1
            await world.registers.look(key, "w1", TIMEOUT)
        assert (await world.registers.swap(world.key("barrier"), 0, b"1", TIMEOUT)).version == 1
        place = f"holdfast_register:{{{lasting.name}}}:"
        assert client.pttl(f"{place}monitor") == -1
        assert client.pttl(f"{place}condition%3Afull") > 29 * 86_400_000
        assert client.pttl(f"{place}barrier") > 29 * 86_400_000
        client.pexpire(f"{place}barrier", 1000)
        await world.registers.peek(world.key("barrier"), TIMEOUT)
        assert client.pttl(f"{place}barrier") > 29 * 86_400_000, "a reader uses it too"
        beside = [key for key in client.scan_iter() if b"_present:" in key or b"_wake:" in key]
        assert len(beside) == 4
        assert all(0 < client.pttl(key) <= 10_000 for key in beside)

    check(case, engine_at(redis_server.url), "sync")


_DENIED: Final[dict[str, tuple[Script, Callable[[World, RegisterKey, Any], Coroutine[Any, Any, Any]]]]] = {
    "load": (scripts.LOAD, lambda world, key, guard: world.others.load(key, guard, TIMEOUT)),
    "store": (
        scripts.STORE,
        lambda world, key, guard: world.others.store(key, guard, 0, TIMEOUT, queue="", join="w1", wake=["w2"]),
    ),
    "look": (scripts.LOOK, lambda world, key, guard: world.others.look(key, "w1", TIMEOUT)),
    "swap": (scripts.SWAP, lambda world, key, guard: world.others.swap(key, 0, b"x", TIMEOUT)),
}


@pytest.mark.parametrize("request_name", _DENIED)
@pytest.mark.parametrize("denied", ["hset", "zadd", "pexpire", "hmget", "time", "pttl", "set", "publish", "zscore"])
def test_denying_a_command_leaves_no_key_without_a_ttl(
    redis_server: RedisServer, request_name: str, denied: str
) -> None:
    script, act = _DENIED[request_name]
    client = redis_server.client()
    command(redis_server, "ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "&*", "+@all")

    async def case(world: World) -> None:
        key = world.key()
        guard = await world.hold(key)
        if script is scripts.STORE:
            await world.load(key, guard)
        command(redis_server, "ACL", "SETUSER", "app", f"-{denied}")
        with contextlib.suppress(EngineRefused):
            await act(world, key, guard)
        command(redis_server, "ACL", "SETUSER", "app", "+@all")
        assert [each for each in client.scan_iter() if client.pttl(each) == -1] == []

    check(case, engine_at(redis_server.url_as("app", "pw")), "sync")
