"""Turns: another program's waiters have no place in the queue, and go first sometimes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast._runtime import clock
from holdfast.engines.base import Busy, Granted
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.engines.redis.session import RedisSession
from tests.redis.support import SOON, TIMEOUT, WOKEN, Other, make_attempt, sync_and_async
from tests.servers.redis import RedisServer
from tests.support.waiting import eventually

KEYS = keys_of("job")


def listener(server: RedisServer) -> Any:
    client: Any = server.client()
    return client.pubsub()


async def granted(session: RedisSession, attempt: RedlockAttempt) -> None:
    contender, until = session.contender(attempt, TIMEOUT), clock.now() + SOON
    while not isinstance(await session.acquire(attempt, TIMEOUT), Granted):
        assert clock.now() < until
        await contender.wait(until)
    contender.abandon()


async def released_beside_a_listener(
    session: RedisSession, server: RedisServer, check: Callable[[RedlockAttempt], Awaitable[None]]
) -> None:
    with listener(server) as java, Other(server.url) as other:
        java.subscribe(KEYS.channel)
        eventually(lambda: server.client().pubsub_numsub(KEYS.channel)[0][1] == 1)
        other.release(other.hold("job"))
        await check(make_attempt("job"))


@sync_and_async
async def test_another_programs_waiters_go_first_for_a_moment(session: RedisSession, server: RedisServer) -> None:
    with listener(server) as java, Other(server.url) as other:
        java.subscribe(KEYS.channel)
        eventually(lambda: server.client().pubsub_numsub(KEYS.channel)[0][1] == 1)
        until = clock.now() + SOON
        while True:  # a slow machine may ask too late, some times
            await granted(session, held := make_attempt("job"))
            other.release(held)
            if isinstance(await session.acquire(attempt := make_attempt("job"), TIMEOUT), Busy):
                break
            assert clock.now() < until
            await session.release(attempt, TIMEOUT)
        assert not server.client().exists("job")


@sync_and_async
async def test_claim_that_yields_is_busy(session: RedisSession, server: RedisServer) -> None:
    client, attempt = server.client(), make_attempt("job")
    client.set(f"{KEYS.tombstones}:yield", "1", px=60_000)  # a moment that lasts
    assert isinstance(await session.acquire(attempt, TIMEOUT), Busy)
    client.hset("job", "java:1", "1")  # it takes the lock
    assert isinstance(await session.acquire(attempt, TIMEOUT), Busy)
    client.delete("job", f"{KEYS.tombstones}:yield")
    assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)


@sync_and_async
async def test_claim_waits_until_the_moment_of_others_is_over(session: RedisSession, server: RedisServer) -> None:
    async def check(attempt: RedlockAttempt) -> None:
        began = clock.now()
        await granted(session, attempt)
        assert clock.now() - began < WOKEN, "it was not left asleep beside a free lock"

    await released_beside_a_listener(session, server, check)


@sync_and_async
async def test_own_listeners_are_not_taken_for_another_program(session: RedisSession, server: RedisServer) -> None:
    server.client().set(f"{KEYS.tombstones}:listeners", "1", px=2000)

    async def check(attempt: RedlockAttempt) -> None:
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)

    await released_beside_a_listener(session, server, check)


@sync_and_async
async def test_release_without_listeners_yields_to_none(session: RedisSession, server: RedisServer) -> None:
    with Other(server.url) as other:
        other.release(other.hold("job"))
        assert isinstance(await session.acquire(make_attempt("job"), TIMEOUT), Granted)


@sync_and_async
@pytest.mark.usefixtures("only_woken")
async def test_release_with_a_waiter_leaves_the_lock_to_another_program_now_and_then(
    session: RedisSession, server: RedisServer
) -> None:
    """The waiter gets to know, and takes the lock when the moment is over, unless the other program has."""
    client = server.client()
    with listener(server) as java, Other(server.url) as other:
        java.subscribe(KEYS.channel)
        eventually(lambda: client.pubsub_numsub(KEYS.channel)[0][1] == 1)
        freed = 0
        for _ in range(8):
            await granted(other.session, held := make_attempt("job"))
            attempt = make_attempt("job")
            contender = session.contender(attempt, TIMEOUT)
            # It was held for so long then that its release looks for others.
            assert await contender.wait(clock.now() + 0.006) is None
            client.delete(f"{KEYS.tombstones}:yield")
            other.release(held)
            free = not client.exists("job")
            freed += free
            until, handed = clock.now() + SOON, None
            while handed is None and not isinstance(await session.acquire(attempt, TIMEOUT), Granted):
                assert clock.now() < until
                handed = await contender.wait(until)
            contender.abandon()
            await session.release(attempt, TIMEOUT)
        assert freed >= 1


@sync_and_async
@pytest.mark.usefixtures("only_waits")
async def test_release_beside_a_fair_lock_of_redisson_yields_to_it(session: RedisSession, server: RedisServer) -> None:
    client = server.client()
    with Other(server.url) as other:
        held, attempt = other.hold("job"), make_attempt("job")
        contender = session.contender(attempt, TIMEOUT)
        await contender.wait(clock.now() + 0.001)
        client.rpush(KEYS.redisson_queue, "java:1")
        other.release(held)
        assert not client.exists("job")
        assert client.lrange(KEYS.queue, 0, -1) == [attempt.entry]
        await contender.leave()
