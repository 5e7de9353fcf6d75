"""RedisFence on a real server: the rule, the guard, user scripts, and failures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast.errors import EngineRefused, InvalidName, StaleToken, UsageError
from holdfast.fencing import AsyncRedisFence, RedisFence
from holdfast.fencing.redis.keys import guard_key
from holdfast.testing.proxy import FaultProxy
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer

LARGEST = 2**63 - 1


@pytest.fixture(params=[False, True], ids=["bytes", "decoded"])
def client(request: pytest.FixtureRequest, redis_server: RedisServer) -> redis.Redis:
    return redis_server.client(decode_responses=request.param)


@pytest.fixture
def fence(client: redis.Redis) -> RedisFence:
    return RedisFence(client)


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


# ---- the rule


@pytest.mark.parametrize(
    "seen, incoming, passes",
    [
        ((5, "a"), (6, "b"), True),
        ((5, "a"), (5, "a"), True),
        ((5, "a"), (5, "b"), False),
        ((5, "a"), (5, None), False),
        ((5, None), (5, "a"), False),
        ((5, None), (5, None), True),
        ((5, "a"), (4, "a"), False),
        ((9, "a"), (10, "a"), True),  # as text, "10" is less than "9"
        ((10, "a"), (9, "a"), False),
        ((2**53, "a"), (2**53 + 1, "b"), True),  # equal as Lua numbers
        ((2**53 + 1, "a"), (2**53, "a"), False),
        ((LARGEST - 1, "a"), (LARGEST, "b"), True),
        ((LARGEST, "a"), (LARGEST - 1, "a"), False),
        ((0, "a"), (1, "a"), True),
        ((5, "-"), (5, None), False),
        ((5, "a\nb ü"), (5, "a\nb ü"), True),
        ((5, "a\0b"), (5, "a\0b"), True),
        ((5, "a\0b"), (5, "a\0c"), False),
    ],
)
def test_newer_token_and_equal_token_of_the_same_owner_pass(
    seen: tuple[int, str | None], incoming: tuple[int, str | None], passes: bool, fence: RedisFence, client: redis.Redis
) -> None:
    fence.set("k", "seen", *seen)
    if passes:
        fence.set("k", "incoming", *incoming)
    else:
        with pytest.raises(StaleToken) as refused:
            fence.set("k", "incoming", *incoming)
        assert (refused.value.resource, refused.value.token, refused.value.seen) == ("k", incoming[0], seen[0])
    assert _text(client.get("k")) == ("incoming" if passes else "seen")


@pytest.mark.parametrize(
    "late",
    [
        lambda fence: fence.set("k", "late", 4, "a"),
        lambda fence: fence.delete("k", 4, "a"),
        lambda fence: fence.get("k", 4, "a"),
        lambda fence: fence.check("k", 4, "a"),
        lambda fence: fence.eval("redis.call('SET', KEYS[1], 'late')", ["k"], [], 4, "a"),
    ],
)
def test_call_with_an_older_token_is_refused_and_changes_nothing(
    late: Callable[[RedisFence], object], fence: RedisFence, client: redis.Redis
) -> None:
    fence.set("k", "new", 5, "b")
    before = client.get("k"), client.get(guard_key("k"))
    with pytest.raises(StaleToken):
        late(fence)
    assert (client.get("k"), client.get(guard_key("k"))) == before


def test_stale_writer_between_load_and_store_of_the_new_holder_is_refused(fence: RedisFence) -> None:
    fence.set("k", "1", 1, "old")
    assert _text(fence.get("k", 2, "new")) == "1"  # raises the guard before it reads
    with pytest.raises(StaleToken):
        fence.set("k", "2", 1, "old")
    fence.set("k", "2", 2, "new")
    assert _text(fence.get("k", 2, "new")) == "2"


def test_fencing_only_the_store_loses_an_acknowledged_update(fence: RedisFence, client: redis.Redis) -> None:
    """Shows why ``get`` raises the guard: the same interleaving with a plain read."""
    fence.set("k", "1", 1, "old")
    loaded = int(client.get("k") or 0)
    fence.set("k", "2", 1, "old")  # acknowledged
    fence.set("k", loaded + 1, 2, "new")  # acknowledged
    assert _text(client.get("k")) == "2", "two increments of 1"


# ---- commands


def test_set_accepts_the_options_of_redis_set(fence: RedisFence, client: redis.Redis) -> None:
    assert fence.set("k", "1", 5, "a", ex=100)
    assert 99_000 < client.pttl("k") <= 100_000
    assert not fence.set("k", "2", 5, "a", nx=True)
    assert fence.set("k", b"3", 5, "a", xx=True, keepttl=True)
    assert client.pttl("k") > 0
    assert fence.set("k", 4, 5, "a", px=timedelta(seconds=50))
    assert 49_000 < client.pttl("k") <= 50_000
    assert fence.set("k", 1.5, 5, "a")
    assert client.pttl("k") == -1
    with pytest.raises(redis.ResponseError, match="syntax error"):
        fence.set("k", "6", 5, "a", ex=1, px=1)


def test_delete_keeps_the_guard(fence: RedisFence, client: redis.Redis) -> None:
    fence.set("k", "1", 5, "a")
    assert fence.delete("k", 5, "a")
    assert not fence.delete("k", 5, "a")
    assert fence.get("k", 5, "a") is None
    with pytest.raises(StaleToken):
        fence.set("k", "1", 4, "a")
    assert client.exists("k") == 0


def test_keys_changed_together_share_a_resource(fence: RedisFence, client: redis.Redis) -> None:
    fence.check("{order}", 5, "a")
    fence.set("{order}:total", 1, 5, "a", resource="{order}")
    fence.eval("redis.call('MSET', KEYS[1], 1, KEYS[2], 2)", ["{order}:a", "{order}:b"], [], 6, "b", resource="{order}")
    with pytest.raises(StaleToken) as refused:
        fence.delete("{order}:total", 5, "a", resource="{order}")
    assert refused.value.resource == "{order}"
    assert _text(client.get("{order}:total")) == "1"


def test_several_keys_without_a_resource_are_refused(fence: RedisFence) -> None:
    for keys in (["a", "b"], []):
        with pytest.raises(UsageError, match="resource="):
            fence.eval("return 1", keys, [], 5)
    with pytest.raises(TypeError, match="list of keys"):
        fence.eval("return 1", "key", [], 5)


# ---- user scripts


def test_user_script_gets_its_own_keys_and_arguments_and_its_reply_is_returned(fence: RedisFence) -> None:
    assert [_text(part) for part in fence.eval("return {KEYS[1], #KEYS, ARGV[2], #ARGV}", ["k"], ["x", "y"], 5)] == [
        "k",
        1,
        "y",
        2,
    ]
    assert fence.eval("return 7 -- a comment without a line end", ["k"], [], 5) == 7
    assert fence.eval("-- first\nlocal guard = 3\nreturn guard", ["k"], [], 5) == 3
    assert _text(fence.eval("return redis.status_reply('FINE')", ["k"], [], 5)) == "FINE"
    assert fence.eval("return nil", ["k"], [], 5) is None
    assert fence.eval("return false", ["k"], [], 5) is None
    assert fence.eval("", ["k"], [], 5) is None
    assert fence.eval("return 1, 2", ["k"], [], 5) == 1
    assert fence.eval("return #ARGV", ["k"], [0] * 20_000, 5) == 20_000


@pytest.mark.parametrize(
    "script",
    ["return 1 end redis.call('SET', KEYS[1], 1) if true then", "retrun 1", "return [[", "\x1bLua", ", 5 return 9"],
)
def test_script_with_a_syntax_error_changes_nothing(script: str, fence: RedisFence, client: redis.Redis) -> None:
    with pytest.raises(UsageError, match="syntax error"):
        fence.eval(script, ["k"], [], 5)
    assert client.keys() == []


def test_script_with_a_shebang_is_refused_with_a_remedy(fence: RedisFence) -> None:
    with pytest.raises(UsageError, match="remove it"):
        fence.eval("#!lua\nreturn 1", ["k"], [], 5)


@pytest.mark.parametrize(
    "script, text", [("error('boo')", "boo"), ("return redis.error_reply('MINE no')", "MINE no"), ("x = 1", "global")]
)
def test_failing_script_keeps_the_guard_raised_and_raises_the_driver_error(
    script: str, text: str, fence: RedisFence
) -> None:
    with pytest.raises(redis.ResponseError, match=f"{text}|readonly"):
        fence.eval(script, ["k"], [], 5, "a")
    with pytest.raises(StaleToken):
        fence.check("k", 4)


# ---- the guard


def test_guard_has_no_ttl_by_default(redis_server: RedisServer) -> None:
    client = redis_server.client()
    RedisFence(client, ttl="1h").set("k", "1", 5, "a")
    assert 3_599_000 < client.pttl(guard_key("k")) <= 3_600_000
    RedisFence(client).get("k", 5, "a")  # an equal token: the TTL of the earlier setting is removed
    assert client.pttl(guard_key("k")) == -1
    for wrong in (0, -1, float("nan"), 1e12):
        with pytest.raises(ValueError):
            RedisFence(client, ttl=wrong)


@pytest.mark.parametrize("content", [b"7", b"seven +a", b"", b"\xff", b" 7 +a"])
def test_unreadable_guard_refuses_every_token(content: bytes, redis_server: RedisServer) -> None:
    client = redis_server.client()
    client.set(guard_key("k"), content)
    with pytest.raises(EngineRefused, match="holdfast_fence"):
        RedisFence(client).set("k", "1", LARGEST, "a")
    assert client.get("k") is None


def test_guard_of_another_type_refuses_every_token(redis_server: RedisServer) -> None:
    client = redis_server.client()
    client.hset(guard_key("k"), "a", "1")
    with pytest.raises(EngineRefused, match="something else"):
        RedisFence(client).set("k", "1", 5, "a")


def test_guard_key_as_data_is_refused(fence: RedisFence) -> None:
    for key in (guard_key("k"), guard_key("k").encode()):
        with pytest.raises(InvalidName, match="guards"):
            fence.delete(key, 5)


def test_keys_may_be_bytes(fence: RedisFence) -> None:
    fence.set(b"k", "1", 5, "a")
    assert _text(fence.get("k", 5, "a")) == "1"
    with pytest.raises(UsageError, match="resource="):
        fence.get(b"\xff", 5, "a")
    assert fence.get(b"\xff", 5, "a", resource="k") is None


# ---- clients


def test_client_of_the_other_kind_is_refused(redis_server: RedisServer) -> None:
    sync, other = redis_server.client(), redis.asyncio.Redis()
    with pytest.raises(UsageError, match="use AsyncRedisFence"):
        RedisFence(other)
    with pytest.raises(UsageError, match="use RedisFence"):
        AsyncRedisFence(sync)
    with pytest.raises(UsageError, match="pipeline"):
        RedisFence(sync.pipeline())
    with pytest.raises(UsageError, match="pipeline"):
        AsyncRedisFence(other.pipeline())
    with pytest.raises(UsageError, match="redis-py"):
        RedisFence("redis://localhost")
    assert repr(RedisFence(sync)) == "RedisFence(Redis)"


async def test_async_fence_keeps_the_same_rule(redis_server: RedisServer) -> None:
    client = redis.asyncio.Redis.from_url(redis_server.url)
    try:
        fence = AsyncRedisFence(client)
        assert await fence.set("k", "1", 5, "a")
        assert await fence.get("k", 6, "b") == b"1"
        for late in (fence.set("k", "2", 5, "a"), fence.delete("k", 5, "a"), fence.check("k", 5, "a")):
            with pytest.raises(StaleToken):
                await late
        assert await fence.eval("return redis.call('INCRBY', KEYS[1], ARGV[1])", ["k"], [2], 6, "b") == 3
        assert await fence.delete("k", 6, "b")
        tokens = await asyncio.gather(*(fence.set("n", token, token) for token in range(50)), return_exceptions=True)
        assert int(await client.get("n") or 0) == 49
        assert all(result is True or isinstance(result, StaleToken) for result in tokens)
    finally:
        await client.aclose()


def test_script_flushed_from_the_server_is_sent_again(fence: RedisFence, client: redis.Redis) -> None:
    fence.set("k", "1", 5, "a")
    client.script_flush()
    assert fence.set("k", "2", 5, "a")
    assert client.info("commandstats")["cmdstat_evalsha"]["failed_calls"] >= 1


@pytest.mark.parametrize("fault", ["drop_reply_and_reset", "drop_request_and_reset"])
def test_repeated_call_after_a_lost_reply_passes(fault: str, redis_server: RedisServer) -> None:
    with FaultProxy(redis_server.host, redis_server.port) as proxy:
        client = redis_server.client(proxy.url, retry=Retry(NoBackoff(), 1))
        fence = RedisFence(client)
        fence.check("k", 1)  # loads the script
        rule = getattr(proxy.on("EVALSHA"), fault)()
        assert fence.set("k", "1", 5, "a")
        assert rule.fired
        assert redis_server.client().get("k") == b"1"


def test_acknowledged_updates_of_rising_tokens_are_kept(redis_server: RedisServer) -> None:
    """Without any lock, threads with new tokens race, and each acknowledged increment counts."""
    acknowledged: list[int] = []

    def add(number: int) -> None:
        client = redis_server.client()
        fence = RedisFence(client)
        for _ in range(60):
            seconds, micros = client.time()
            token = seconds * 10**6 + micros
            try:
                value = int(fence.get("n", token, f"t{number}") or 0)
                fence.set("n", value + 1, token, f"t{number}")
                acknowledged.append(token)
            except StaleToken:
                pass

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int(redis_server.client().get("n") or 0) == len(acknowledged) > 0


def test_least_rights_suffice_and_fewer_raise_the_driver_error(redis_server: RedisServer) -> None:
    rights = ["reset", "on", ">pw", "-@all", "+eval", "+evalsha", "+get", "+set", "+del", "~app:*"]
    redis_server.ask("ACL", "SETUSER", "writer", *rights, "~holdfast_fence:{app:*")
    try:
        fence = RedisFence(redis_server.client(redis_server.url_as("writer", "pw")))
        fence.set("app:k", "1", 5, "a")
        assert fence.get("app:k", 5, "a") == b"1"
        assert fence.delete("app:k", 5, "a")
        redis_server.ask("ACL", "SETUSER", "writer", "resetkeys", "~app:*")
        with pytest.raises(redis.exceptions.NoPermissionError):
            fence.set("app:k", "1", 5, "a")
    finally:
        redis_server.ask("ACL", "DELUSER", "writer")


# ---- cluster


def test_guard_in_a_cluster_is_in_the_slot_of_its_data(redis_cluster: RedisCluster) -> None:
    kind: Any = redis.cluster.ClusterNode  # untyped
    nodes = [kind(node.host, node.port) for node in redis_cluster.nodes[:3]]
    client = redis.RedisCluster(startup_nodes=nodes)
    try:
        fence = RedisFence(client)
        for key in ("plain", "tagged:{t}:x", "{t}", "{a{b}", "open{brace", "{x}{y}", "{ }"):
            assert fence.set(key, "1", 5, "a")
            assert fence.get(key, 6, "b") == b"1"
            with pytest.raises(StaleToken):
                fence.set(key, "2", 5, "a")
        for key in ("a}b", "{}x", "}{"):
            with pytest.raises(InvalidName, match="hash tag"):
                fence.set(key, "1", 5, "a")
        with pytest.raises(redis.exceptions.RedisClusterException):
            fence.set("elsewhere", "1", 5, "a", resource="{t}")
        assert client.get("elsewhere") is None
    finally:
        client.close()


async def test_async_fence_in_a_cluster_keeps_the_same_rule(redis_cluster: RedisCluster) -> None:
    client = redis.asyncio.RedisCluster(host=redis_cluster.nodes[0].host, port=redis_cluster.nodes[0].port)
    try:
        fence = AsyncRedisFence(client)
        assert await fence.set("k", "1", 5, "a")
        with pytest.raises(StaleToken):
            await fence.set("k", "2", 4, "a")
        assert await fence.get("k", 6, "b") == b"1"
    finally:
        await client.aclose()
