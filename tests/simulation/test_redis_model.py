"""The Redis model compared with a real Redis: the same commands give the same replies and pushes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import hiredis
import pytest

from holdfast.engines.base import READ, WRITE, Claim, permits
from holdfast.engines.redis.dialect import permits as permits_dialect
from holdfast.engines.redis.dialect import rwlocks
from holdfast.engines.redis.dialect.operators import encode_held
from holdfast.engines.redis.dialect.requests import Call
from tests.servers.redis import RedisServer
from tests.simulation.raw_redis import RawConnection
from tests.simulation.redis_model.keyspace import ReplyError
from tests.simulation.redis_model.server import Push, RedisModel


class ModelConnection:
    """The model with the interface of a :class:`RawConnection`. Its clock moves only when the test moves it."""

    def __init__(self, model: RedisModel) -> None:
        self._model = model
        self.pushes: list[Push] = []
        self._connection = model.connect(self.pushes.append)

    def call(self, *words: str | bytes | int) -> Any:
        encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        try:
            reply = self._model.execute(self._connection, encoded)
        except ReplyError as error:
            return error
        finally:
            self._model.drain()
        return reply.encode() if isinstance(reply, str) else reply


def model_at(microseconds: int = 1_800_000_000_000_000) -> RedisModel:
    return RedisModel(lambda: microseconds)


def comparable(reply: Any) -> Any:
    """Errors are compared by their code, as the engine reads them; RESP3's maps as RESP2's flat lists."""
    if isinstance(reply, hiredis.ReplyError | ReplyError):
        return "error " + str(reply).partition(" ")[0]
    if isinstance(reply, dict):
        return [word for pair in reply.items() for word in pair]
    if isinstance(reply, list):
        return [comparable(item) for item in reply]
    return reply


def some_command(dice: random.Random) -> Sequence[str | int]:
    key, other = dice.choice("stuv"), dice.choice("stuv")
    word, number = dice.choice(("x", "y", "12", "-3", "")), dice.randint(-3, 3)
    seconds = 1000 * dice.randint(100, 10**6)  # far apart, because the real server's clock goes on
    return dice.choice(
        [
            ("EXISTS", key, other), ("TYPE", key), ("DEL", key, other), ("UNLINK", key),
            ("PEXPIRE", key, 100_000), ("PEXPIRE", key, -1), ("PEXPIRE", key, seconds, "GT"), ("PERSIST", key),
            ("PEXPIRE", key, seconds, "NX"), ("PEXPIRE", key, seconds, "LT"),
            ("GET", key), ("SET", key, word), ("SET", key, word, "NX"),
            ("SET", key, word, "XX"), ("SET", key, word, "PX", number * 100_000), ("SET", key, word, "KEEPTTL"),
            ("SET", key, word, "BAD"), ("INCR", key), ("INCRBY", key, number), ("INCRBY", key, word),
            ("HSET", key, word, number), ("HSET", key, word), ("HGET", key, word), ("HMGET", key, "x", word),
            ("HEXISTS", key, word), ("HDEL", key, word, "x"), ("HLEN", key), ("HINCRBY", key, word, number),
            ("RPUSH", key, word, number), ("LPUSH", key, word, number), ("LPOP", key), ("LLEN", key),
            ("LINDEX", key, number), ("LPOS", key, word), ("LRANGE", key, number, -number),
            ("LREM", key, number, word), ("ZADD", key, number, word), ("ZREM", key, word), ("ZCARD", key),
            ("ZADD", key, number, word, number + 1, "z"), ("ZADD", key, number, word, number),
            ("ZMSCORE", key, word, "z"),
            ("ZRANGE", key, 0, -1, "WITHSCORES"), ("ZRANGEBYSCORE", key, "-inf", number, "LIMIT", 0, 1),
            ("ZRANGE", key, 0, -1), ("ZRANGEBYSCORE", key, f"({number}", "+inf"),
            ("ZREMRANGEBYSCORE", key, "-inf", number), ("GET",), ("HGET", key),
        ]
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_random_commands_get_the_same_replies_as_from_redis(redis_server: RedisServer, seed: int) -> None:
    dice = random.Random(seed)
    model = ModelConnection(model_at())
    with RawConnection(redis_server) as real:
        for step in range(1500):
            command = some_command(dice)
            expected, got = comparable(real.call(*command)), comparable(model.call(*command))
            assert got == expected, f"seed {seed}, step {step}: {command}"
            if step % 50 == 0:
                assert sorted(model._model.keys) == sorted(real.call("KEYS", "*"))


SCRIPTS = [
    "return {1.9, -1.9, true, false, 'x', {1, {2}}, nil, 3}",
    "return redis.status_reply('FINE')",
    "return {ok='FINE'}",
    "return redis.error_reply('BAD things')",
    "return {err='BAD things'}",
    "return redis.call('HGET', KEYS[1], 'f')",
    "return redis.pcall('GET', KEYS[2])",
    "local reply = redis.pcall('GET', KEYS[2]) return reply.err and 'an error' or 'none'",
    "redis.call('GET', KEYS[2]) return 'not reached'",
    "undeclared = 1",
    "return undeclared",
    "return redis.call('GET', 'missing') == false and 'false' or 'other'",
    "return tostring(1800000000000001)",
    "redis.call('SET', KEYS[3], 1800000000000001) return redis.call('GET', KEYS[3])",
    "redis.call('SET', KEYS[3], 1.5) return redis.call('GET', KEYS[3])",
    "redis.call('SET', KEYS[3], string.format('%.0f', 1800000000000001)) return redis.call('INCR', KEYS[3])",
    "redis.call('SET', KEYS[3], 1800000000000001 .. '') return redis.call('INCR', KEYS[3])",
    "return redis.call('SET', KEYS[3], 'v')['ok']",
    "return #redis.call('HGETALL', KEYS[1])",
    "return {#KEYS, #ARGV, ARGV[1], ARGV[3]}",
    "return string.match('12 34', '^(%d+) ')",
    "return 0/0 ~= 0/0 and 1 or 0",
    "return redis.sha1hex('x')",
    "local done = pcall(redis.call, 'GET', KEYS[2]) return tostring(done)",
    "this is not Lua",
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_get_and_return_the_same_values_as_on_redis(redis_server: RedisServer, script: str) -> None:
    model = ModelConnection(model_at())
    with RawConnection(redis_server) as real:
        answers = []
        connections: list[Any] = [real, model]
        for connection in connections:
            connection.call("HSET", "hash", "f", "1")
            answers.append(comparable(connection.call("EVAL", script, 3, "hash", "hash", "number", "a", "b")))
        assert answers[1] == answers[0]


OWNERS = [f"{number:032x}:{number}" for number in range(4)]


def some_claim_step(dice: random.Random) -> Call:
    """A step of a read-write lock or of a semaphore, by one of a few claims."""
    owner, name = dice.choice(OWNERS), dice.choice(("rw", "sem"))
    if name == "rw":
        claim = Claim(name, owner, 3600.0, mode=dice.choice((READ, WRITE)))
        under = dice.choice((None, OWNERS[0])) if claim.mode is READ else None
        return dice.choice(
            [
                rwlocks.encode_acquire(claim, owner, None, 1000, under),
                rwlocks.encode_release(claim, owner, "PUBLISH", None, None),
                rwlocks.encode_renew([(claim, owner)], 3600.0, 0, always_write=False),
                rwlocks.encode_break(name, "PUBLISH", 1000, None) if dice.random() < 0.1 else encode_held(name),
            ]
        )
    claim = Claim(name, owner, 3600.0, mode=permits(OWNERS.index(owner) + 1, 5))
    return dice.choice(
        [
            permits_dialect.encode_acquire(claim, owner, None, 1000, "PUBLISH"),
            permits_dialect.encode_release(claim, owner, "PUBLISH", None, None),
            permits_dialect.encode_renew([(claim, owner)], 3600.0, 0, always_write=False),
            permits_dialect.encode_resize(name, dice.randint(1, 8), dice.choice(("", "request")), 1000, "PUBLISH"),
        ]
    )


def without_times(reply: Any) -> Any:
    """Tokens are times of the server, and PTTLs of keys that were just written differ by the run."""
    if isinstance(reply, list):
        return [without_times(item) for item in reply]
    if isinstance(reply, bytes) and reply.isdigit():
        return "token"
    return "pttl" if isinstance(reply, int) and reply > 1000 else reply


@pytest.mark.parametrize("seed", range(3))
def test_scripts_of_shared_kinds_do_the_same_as_on_redis(redis_server: RedisServer, seed: int) -> None:
    dice = random.Random(seed)
    model = ModelConnection(model_at())
    with RawConnection(redis_server) as real:
        connections: list[Any] = [real, model]
        for step in range(300):
            call = some_claim_step(dice)
            words = ("EVAL", call.script.source, len(call.keys), *call.keys, *call.args)
            expected, got = (without_times(comparable(each.call(*words))) for each in connections)
            assert got == expected, f"seed {seed}, step {step}: {call.script.name} {call.args}"
        expected, got = ([sorted(each.call("HKEYS", "rw")), each.call("GET", "sem")] for each in connections)
        assert got == expected


def test_unknown_command_is_an_error_also_inside_a_script() -> None:
    model = ModelConnection(model_at())
    with pytest.raises(NotImplementedError, match="OBJECT"):
        model.call("OBJECT", "ENCODING", "k")
    with pytest.raises(NotImplementedError, match="OBJECT"):
        model.call("EVAL", "return pcall(redis.call, 'OBJECT', 'ENCODING', KEYS[1])", 1, "k")


#: (number of the connection, command) …; afterwards both sides must have pushed the same.
TRACKING: dict[str, list[tuple[int, tuple[str | int, ...]]]] = {
    "opted in, once": [
        (0, ("CLIENT", "CACHING", "YES")), (0, ("PTTL", "k")), (1, ("SET", "k", 1)), (1, ("SET", "k", 2)),
    ],
    "not opted in": [(0, ("PTTL", "k")), (1, ("SET", "k", 1))],
    "only the next command": [
        (0, ("CLIENT", "CACHING", "YES")), (0, ("PTTL", "other")), (0, ("PTTL", "k")), (1, ("SET", "k", 1)),
    ],
    "own writes push too": [(0, ("CLIENT", "CACHING", "YES")), (0, ("GET", "k")), (0, ("SET", "k", 1))],
    "expiry setting pushes": [
        (1, ("SET", "k", 1)), (0, ("CLIENT", "CACHING", "YES")), (0, ("EXISTS", "k")), (1, ("PEXPIRE", "k", 9999)),
    ],
    "nothing changed, nothing pushed": [
        (0, ("CLIENT", "CACHING", "YES")), (0, ("EXISTS", "k")), (1, ("DEL", "k")), (1, ("PEXPIRE", "k", 9999)),
    ],
    "flush pushes null": [(0, ("CLIENT", "CACHING", "YES")), (0, ("EXISTS", "k")), (1, ("FLUSHALL",))],
    "read in a script": [
        (2, ("EVAL", "return redis.call('EXISTS', KEYS[1])", 1, "k")), (1, ("SET", "k", 1)),
    ],
    "own write without loop": [
        (2, ("EVAL", "return redis.call('EXISTS', KEYS[1])", 1, "k")), (2, ("SET", "k", 1)), (1, ("SET", "k", 2)),
    ],
    "a write after the read ends it": [
        (2, ("EVAL", "redis.call('EXISTS', KEYS[1]) redis.call('SET', KEYS[1], 1)", 1, "k")), (1, ("SET", "k", 2)),
    ],
    "a read after the write does not": [
        (2, ("EVAL", "redis.call('SET', KEYS[1], 1) redis.call('EXISTS', KEYS[1])", 1, "k")), (1, ("SET", "k", 2)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("case", TRACKING)
def test_tracking_pushes_the_same_as_redis(redis_server: RedisServer, case: str) -> None:
    model = model_at()
    ours = [ModelConnection(model) for _ in range(3)]
    with RawConnection(redis_server) as a, RawConnection(redis_server) as b, RawConnection(redis_server) as c:
        theirs = [a, b, c]
        for connection in theirs:
            connection.call("HELLO", 3)
        sides: list[list[Any]] = [ours, theirs]
        for side in sides:
            side[0].call("CLIENT", "TRACKING", "ON", "OPTIN")
            side[2].call("CLIENT", "TRACKING", "ON", "NOLOOP")
            for number, command in TRACKING[case]:
                side[number].call(*command)
            for connection in side:
                connection.call("PING")  # a push that is under way arrives before this answer
        assert [connection.pushes for connection in ours] == [connection.pushes for connection in theirs]


def test_expiry_follows_the_server_clock_and_is_pushed_when_a_client_reads() -> None:
    now = 1_000_000
    model = RedisModel(lambda: now)
    watcher, other = ModelConnection(model), ModelConnection(model)
    watcher.call("CLIENT", "TRACKING", "ON", "OPTIN")
    other.call("SET", "k", "1", "PX", 100)
    watcher.call("CLIENT", "CACHING", "YES")
    assert watcher.call("PTTL", "k") == 100
    now += 101_000
    assert model.keys.peek(b"k") is None
    assert watcher.pushes == []
    assert other.call("EXISTS", "k") == 0
    assert watcher.pushes == [("invalidate", [b"k"])]
