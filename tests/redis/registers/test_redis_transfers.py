"""A held lock is given to another claim: one step, exactly one owner, lost replies and late requests."""

from __future__ import annotations

import pytest

from holdfast.engines.base import Busy, Found, Granted
from holdfast.engines.redis import scripts
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.session import RedisSession
from holdfast.testing.proxy import FaultProxy
from tests.redis.cluster.support import on as on_cluster
from tests.redis.support import TIMEOUT, keeper_of, make_attempt, on_api, renewed, sync_and_async
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer

NAME = "job"


async def held(session: RedisSession, ttl: float = 30.0) -> tuple[RedlockAttempt, int, str]:
    """An attempt that holds the lock, its token and its owner."""
    attempt = make_attempt(NAME, ttl)
    granted = await session.acquire(attempt, TIMEOUT)
    assert isinstance(granted, Granted)
    return attempt, granted.token, attempt.owner


@sync_and_async
async def test_new_owner_has_a_larger_token_and_the_old_one_has_lost_it(
    session: RedisSession, server: RedisServer
) -> None:
    old, token, owner = await held(session)
    new = make_attempt(NAME, 10.0, description=b'{"host":"h2"}')
    granted = await session.transfer(new, owner, TIMEOUT)
    assert isinstance(granted, Granted)
    assert granted.token > token
    assert await session.transfer(new, owner, TIMEOUT) == granted, "repeated after a lost reply"
    assert server.client().hgetall(NAME) == {new.owner.encode(): b"1"}
    assert server.client().pttl(NAME) > 25_000, "the expiry is never shortened"
    assert await renewed(session, old, 30.0, TIMEOUT) is Found.STOLEN
    (holder,) = (await session.inspect(NAME, TIMEOUT)).holders
    assert (holder.owner, holder.host, holder.token) == (new.owner, "h2", granted.token)
    assert await session.release(new, TIMEOUT) is Found.OURS
    assert isinstance(await session.acquire(old, TIMEOUT), Busy), "a late request of the old owner finds its tombstone"


@sync_and_async
async def test_longer_ttl_of_the_new_owner_counts(session: RedisSession, server: RedisServer) -> None:
    _, _, owner = await held(session, 5.0)
    assert isinstance(await session.transfer(make_attempt(NAME, 60.0), owner, TIMEOUT), Granted)
    assert server.client().pttl(NAME) > 50_000
    assert server.client().pttl(f"holdfast_owner:{{{NAME}}}") > 50_000


@sync_and_async
async def test_one_of_two_transfers_from_the_same_owner_succeeds(session: RedisSession, server: RedisServer) -> None:
    _, _, owner = await held(session)
    first, second = make_attempt(NAME), make_attempt(NAME)
    assert isinstance(await session.transfer(first, owner, TIMEOUT), Granted)
    assert await session.transfer(second, owner, TIMEOUT) is Found.STOLEN
    await session.release(first, TIMEOUT)
    assert await session.transfer(second, owner, TIMEOUT) is Found.GONE
    assert await session.transfer(first, owner, TIMEOUT) is Found.GONE, "a late duplicate"
    assert not server.client().exists(NAME)


@sync_and_async
async def test_withdrawn_attempt_is_given_nothing(session: RedisSession, server: RedisServer) -> None:
    old, _, owner = await held(session)
    new = make_attempt(NAME)
    await keeper_of(session).withdraw([new], TIMEOUT)
    assert await session.transfer(new, owner, TIMEOUT) is Found.STOLEN
    assert await renewed(session, old, 30.0, TIMEOUT) is Found.OURS


@sync_and_async
async def test_key_of_another_type_is_not_touched(session: RedisSession, server: RedisServer) -> None:
    server.client().set(NAME, "x")
    assert await session.transfer(make_attempt(NAME), "client:1", TIMEOUT) is Found.STOLEN
    assert server.client().get(NAME) == b"x"


@pytest.mark.parametrize("api", ["sync", "async"])
def test_late_duplicate_of_a_transfer_has_no_effect(redis_server: RedisServer, api: str) -> None:
    with FaultProxy(redis_server.host, redis_server.port) as proxy:

        async def body(session: RedisSession) -> None:
            _, _, owner = await held(session)
            ticket, last = make_attempt(NAME), make_attempt(NAME)
            proxy.on(script=scripts.TRANSFER).duplicate()
            assert isinstance(await session.transfer(ticket, owner, TIMEOUT), Granted)
            granted = await session.transfer(last, ticket.owner, TIMEOUT)
            proxy.release_duplicates()
            assert await session.transfer(last, ticket.owner, TIMEOUT) == granted
            assert await session.release(last, TIMEOUT) is Found.OURS

        on_api(api, proxy.url, body)


@pytest.mark.parametrize("api", ["sync", "async"])
def test_lock_is_given_on_in_a_cluster(redis_cluster: RedisCluster, api: str) -> None:
    async def body(session: RedisSession) -> None:
        _, token, owner = await held(session)
        new = make_attempt(NAME)
        granted = await session.transfer(new, owner, TIMEOUT)
        assert isinstance(granted, Granted)
        assert granted.token > token
        assert await session.release(new, TIMEOUT) is Found.OURS

    on_cluster(redis_cluster.url, api, body)
