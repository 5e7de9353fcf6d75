"""A latch shares its count with Redisson's RCountDownLatch. Its commands are sent by hand; Java is in tests/interop."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast
from tests.servers.redis import RedisServer
from tests.support.waiting import eventually

CHANNEL = "redisson_countdownlatch__channel__{loaded}"


@pytest.fixture
def locks(redis_server: RedisServer) -> Iterator[holdfast.Client]:
    with holdfast.connect(redis_server.url) as client:
        yield client


def count_down(server: RedisServer) -> None:
    """What Redisson does."""
    if int(server.ask("DECR", "loaded")) <= 0:
        server.ask("DEL", "loaded")
        server.ask("PUBLISH", CHANNEL, "0")


def test_count_is_a_number_that_is_gone_when_the_latch_is_open(
    locks: holdfast.Client, redis_server: RedisServer
) -> None:
    latch = locks.latch("loaded", 2)
    latch.count_down()
    assert redis_server.ask("GET", "loaded") == "1"
    latch.count_down()
    assert redis_server.ask("EXISTS", "loaded") == 0
    assert latch.wait(0)
    latch.reset()
    assert redis_server.ask("GET", "loaded") == "2"


def test_count_that_another_program_changes_is_the_count_of_the_latch(
    locks: holdfast.Client, redis_server: RedisServer
) -> None:
    redis_server.ask("SET", "loaded", "3")
    latch = locks.latch("loaded", None)
    assert latch.count() == 3
    count_down(redis_server)
    latch.count_down()
    assert redis_server.ask("GET", "loaded") == "1"
    count_down(redis_server)
    assert latch.count() == 0
    redis_server.ask("SET", "loaded", "5")
    assert latch.count() == 5
    assert int(redis_server.ask("PTTL", "loaded")) == -1, "a key that has no ttl gets none"


def test_larger_count_that_another_program_has_set_ends_the_round(
    locks: holdfast.Client, redis_server: RedisServer
) -> None:
    """It was gone in between, so the latch was open: waiters of that round are through."""

    def round_of_latch() -> int:
        value = json.loads(redis_server.ask("HGET", "holdfast_register:{loaded}:latch", "value"))
        assert isinstance(value[1], int)
        return value[1]

    latch = locks.latch("loaded", 3)
    latch.count_down()
    for number, ended in (("1", 0), ("7", 1), ("6", 1), ("8", 2)):
        redis_server.ask("SET", "loaded", number)
        assert latch.count() == int(number)
        assert round_of_latch() == ended
    redis_server.ask("DEL", "loaded")
    assert latch.count() == 0
    assert round_of_latch() == 3


@pytest.mark.parametrize("how", ["tracking", "channel"])
def test_waiter_is_woken_by_the_count_of_another_program(
    start_redis: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("holdfast.primitives.shared_state._LOOKS_EVERY", (60.0, 60.0))
    server = start_redis()
    if how == "channel":
        server.ask("ACL", "SETUSER", "default", "-client|tracking")
    with holdfast.connect(server.url) as locks, ThreadPoolExecutor(1) as pool:
        latch = locks.latch("loaded", 1)
        latch.reset()
        waiting = pool.submit(latch.wait, 20)
        if how == "tracking":
            eventually(lambda: "flags=t" in str(server.ask("CLIENT", "LIST")))
        else:
            eventually(lambda: server.ask("PUBSUB", "CHANNELS", CHANNEL))
        count_down(server)
        assert waiting.result(30)


@pytest.mark.parametrize("command", [("HSET", "loaded", "a", "1"), ("SET", "loaded", "text")])
def test_key_of_another_program_is_refused_and_left_as_it_is(
    locks: holdfast.Client, redis_server: RedisServer, command: tuple[str, ...]
) -> None:
    redis_server.ask(*command)
    kind = redis_server.ask("TYPE", "loaded")
    for act in (locks.latch("loaded", 1).count_down, locks.latch("loaded", 1).reset, locks.latch("loaded", 1).count):
        with pytest.raises(holdfast.EngineRefused, match="'loaded' holds a value of another type"):
            act()
    assert redis_server.ask("TYPE", "loaded") == kind
    assert redis_server.ask("DEL", "loaded") == 1
    assert redis_server.ask("KEYS", "*") == [], "nothing was written"


def test_count_lasts_longer_than_the_state_of_the_latch(redis_server: RedisServer) -> None:
    """If it expired first, the latch would seem to be open."""
    with holdfast.connect(redis_server.url, token_ttl=100) as locks:
        locks.latch("loaded", 2).count_down()
    register = "holdfast_register:{loaded}:latch"
    assert int(redis_server.ask("PTTL", "loaded")) > int(redis_server.ask("PTTL", register)) + 50_000
    redis_server.ask("DEL", register)
    with holdfast.connect(redis_server.url, token_ttl=100) as locks:
        assert locks.latch("loaded", None).count() == 1
