"""Inspecting locks: inspect and names."""

from __future__ import annotations

import time

import pytest

from holdfast._runtime import clock
from holdfast.engines.base import Granted, Waiter
from holdfast.engines.redis.session import RedisSession
from tests.redis.support import TIMEOUT, Other, make_attempt, sync_and_async
from tests.servers.redis import RedisServer


async def names(session: RedisSession, prefix: str = "") -> set[str]:
    return {name async for name in session.names(prefix, TIMEOUT)}


@sync_and_async
async def test_held_lock_is_described(session: RedisSession, server: RedisServer) -> None:
    attempt = make_attempt("job", description=b'{"host": "h", "pid": 7, "thread": "t", "program": "p"}')
    granted = await session.acquire(attempt, TIMEOUT)
    assert isinstance(granted, Granted)
    waits = make_attempt("job")
    contender = session.contender(waits, TIMEOUT)
    await contender.wait(clock.now() + 0.01)
    server.client().rpush("holdfast_queue:{job}", "dead")
    state = await session.inspect("job", TIMEOUT)
    (holder,) = state.holders
    assert (holder.owner, holder.host, holder.pid, holder.thread, holder.program) == (attempt.owner, "h", 7, "t", "p")
    assert holder.count == 1
    assert holder.token == state.token == granted.token
    assert holder.since is not None
    assert holder.until is not None
    assert abs(holder.since - time.time()) < 60
    assert 20 < holder.until - holder.since < 40
    assert state.waiters == 1
    assert state.remaining is not None
    assert 20 < state.remaining <= 30
    await contender.leave()


@sync_and_async
async def test_free_lock_has_no_holders(session: RedisSession, server: RedisServer) -> None:
    state = await session.inspect("nothing", TIMEOUT)
    assert (state.name, state.holders, state.waiters, state.token, state.remaining) == ("nothing", (), 0, None, None)


@sync_and_async
async def test_foreign_holder_is_shown(session: RedisSession, server: RedisServer) -> None:
    client = server.client()
    client.hset("job", "8f0c8f2e-5c7b-4b0e-9d3b-0c6c1d6f4f11:42", 2)
    client.pexpire("job", 10_000)
    (holder,) = (await session.inspect("job", TIMEOUT)).holders
    assert (holder.owner, holder.count) == ("8f0c8f2e-5c7b-4b0e-9d3b-0c6c1d6f4f11:42", 2)
    assert (holder.host, holder.since, holder.token) == (None, None, None)


@sync_and_async
async def test_names_lists_held_locks_only(session: RedisSession, server: RedisServer) -> None:
    held = {"app:1", "app:{2}", "app:*", "other", "{app:3}", "é"}
    with Other(server.url) as other:
        for name in held:
            other.hold(name)
        other.release(other.hold("app:released"))
        server.client().delete("other")  # its metadata still exists
        server.client().set("app:a-string", "not a lock")
        held.remove("other")
        assert await names(session) == held
        assert await names(session, "app:") == {"app:1", "app:{2}", "app:*"}
        assert await names(session, "app:*") == {"app:*"}
        assert await names(session, "{app") == {"{app:3}"}
        assert await names(session, "zzz") == set()


@sync_and_async
async def test_many_names_are_listed_once_each(session: RedisSession, server: RedisServer) -> None:
    with Other(server.url) as other:
        for number in range(1200):
            other.hold(f"job-{number}")
        found = [name async for name in session.names("job-", TIMEOUT)]
        assert sorted(found) == sorted(f"job-{number}" for number in range(1200))


@sync_and_async
@pytest.mark.usefixtures("hurried")
async def test_waiter_descriptions_are_in_keys_with_a_ttl(session: RedisSession, server: RedisServer) -> None:
    with Other(server.url) as other:
        other.hold("job")
        attempt = make_attempt(
            "job", description=b'{"host": "h", "pid": 7, "thread": "t", "program": "p", "label": "l"}'
        )
        contender = session.contender(attempt, TIMEOUT)
        await contender.wait(clock.now() + 0.01)
        (waiter,) = (await session.inspect("job", TIMEOUT)).queue
        assert waiter == Waiter(attempt.owner, "h", 7, "t", "p", "l", waiter.since)
        assert waiter.since is not None
        assert abs(waiter.since - time.time()) < 60
        client = server.client()
        assert {key for key in client.keys("holdfast_queue:*") if client.pttl(key) < 0} == set()
        assert len(client.keys("holdfast_queue:*")) == 2
        await contender.leave()
        assert (await session.inspect("job", TIMEOUT)).queue == ()


@sync_and_async
@pytest.mark.usefixtures("only_waits")
async def test_waiter_that_has_just_joined_is_shown(session: RedisSession, server: RedisServer) -> None:
    with Other(server.url) as other:
        other.hold("job")
        attempts = [make_attempt("job", description=b'{"pid": %d}' % number) for number in (1, 2)]
        contenders = [session.contender(attempt, TIMEOUT) for attempt in attempts]
        for contender in contenders:
            await contender.wait(clock.now() + 0.001)
        assert server.client().keys("holdfast_queue:*") == [b"holdfast_queue:{job}"]
        state = await session.inspect("job", TIMEOUT)
        assert [(waiter.owner, waiter.pid) for waiter in state.queue] == [
            (attempts[0].owner, 1),
            (attempts[1].owner, 2),
        ]
        assert state.waiters == 2
        for contender in contenders:
            await contender.leave()


@sync_and_async
async def test_foreign_waiters_are_shown_with_the_details_they_provide(
    session: RedisSession, server: RedisServer
) -> None:
    client = server.client()
    descriptions = {"old": "1", "odd": "1790000000.000001 a:1 [", "long": "x" * 5000, "none": ""}
    for waiter, value in descriptions.items():
        client.rpush("holdfast_queue:{job}", waiter)
        client.set(f"holdfast_queue:{{job}}:{waiter}", value, px=20_000)
    client.rpush("redisson_lock_queue:{job}", "8f0c8f2e-5c7b-4b0e-9d3b-0c6c1d6f4f11:42")
    state = await session.inspect("job", TIMEOUT)
    assert state.queue == (
        Waiter("old"),
        Waiter("a:1", since=1790000000.000001),
        Waiter("long"),
        Waiter("none"),
        Waiter("8f0c8f2e-5c7b-4b0e-9d3b-0c6c1d6f4f11:42"),
    )
    assert state.waiters == 5


@sync_and_async
async def test_long_queue_is_counted_and_its_beginning_listed(session: RedisSession, server: RedisServer) -> None:
    client = server.client()
    for number in range(250):
        client.rpush("holdfast_queue:{job}", f"w{number}")
        if number % 2:
            client.set(f"holdfast_queue:{{job}}:w{number}", "1", px=20_000)
    client.rpush("redisson_lock_queue:{job}", *(f"r{number}" for number in range(250)))
    state = await session.inspect("job", TIMEOUT)
    assert [waiter.owner for waiter in state.queue] == [f"w{2 * number + 1}" for number in range(100)]
    assert state.waiters == 225


@sync_and_async
async def test_key_of_another_type_beside_the_queue_of_redisson_is_ignored(
    session: RedisSession, server: RedisServer
) -> None:
    server.client().set("redisson_lock_queue:{job}", "a string")
    assert (await session.inspect("job", TIMEOUT)).queue == ()
