"""break_ with a token: one script compares and breaks."""

from __future__ import annotations

from holdfast.engines.base import Found, Granted
from holdfast.engines.redis.session import RedisSession
from tests.redis.support import TIMEOUT, make_attempt, sync_and_async
from tests.servers.redis import RedisServer

_FOREIGN = "8f0c8f2e-5c7b-4b0e-9d3b-0c6c1d6f4f11:42"


@sync_and_async
async def test_only_tokens_of_the_holders_block_break_it(session: RedisSession, server: RedisServer) -> None:
    for size, place, broken in ((1, 0, True), (17, 0, True), (17, 16, True), (17, 17, False), (17, -1, False)):
        attempt = make_attempt("job", tokens=size)
        granted = await session.acquire(attempt, TIMEOUT)
        assert isinstance(granted, Granted)
        token = granted.token - size + 1 + place
        assert await session.break_("job", TIMEOUT, token) is broken
        assert (await session.release(attempt, TIMEOUT)) is (Found.GONE if broken else Found.OURS)


@sync_and_async
async def test_break_with_another_token_writes_nothing(session: RedisSession, server: RedisServer) -> None:
    granted = await session.acquire(make_attempt("job"), TIMEOUT)
    assert isinstance(granted, Granted)
    client = server.client()
    before = {key: client.dump(key) for key in client.keys("*")}
    for token in (0, granted.token - 1, granted.token + 1, 2**53 + 1, 10**400):
        assert await session.break_("job", TIMEOUT, token) is False
    assert {key: client.dump(key) for key in client.keys("*")} == before


@sync_and_async
async def test_holder_without_a_token_is_broken_only_without_one(session: RedisSession, server: RedisServer) -> None:
    client = server.client()
    client.hset("job", _FOREIGN, 2)
    client.pexpire("job", 10_000)
    client.set("redisson_lock_token:{job}", 5)  # the fenced lock of Redisson counts tokens but does not name the holder
    assert await session.break_("job", TIMEOUT, 5) is False
    assert client.hgetall("job") == {_FOREIGN.encode(): b"2"}
    assert await session.break_("job", TIMEOUT) is True


@sync_and_async
async def test_metadata_of_an_earlier_holder_is_not_taken_for_the_current_one(
    session: RedisSession, server: RedisServer
) -> None:
    """A lock that expired and was acquired by Redisson, which writes no metadata, beside our leftover metadata."""
    granted = await session.acquire(make_attempt("job"), TIMEOUT)
    assert isinstance(granted, Granted)
    client = server.client()
    client.delete("job")
    client.hset("job", _FOREIGN, 1)
    assert await session.break_("job", TIMEOUT, granted.token) is False
    assert client.exists("job") == 1
