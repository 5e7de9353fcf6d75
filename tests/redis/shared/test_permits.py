"""Semaphores at the engine: permits, their order, and what is left behind."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast._runtime import clock
from holdfast.engines.base import Busy, Found, Granted, permits
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.session import RedisSession
from holdfast.errors import EngineRefused
from tests.redis.shared.claims import endless, granted, queue_up
from tests.redis.support import LATE, TIMEOUT, command, dies_waiting, keeper_of, make_attempt, sync_and_async
from tests.servers.redis import RedisServer

NAME = "job"
NEVER = 922337203685477


def attempt(count: int, size: int, ttl: float = 30.0) -> RedisAttempt:
    return make_attempt(NAME, ttl, mode=permits(count, size))


def operator(server: RedisServer) -> Any:
    """A client of redis-py, whose annotations know too many kinds of replies."""
    return server.client()


async def free(session: RedisSession) -> tuple[int | None, int | None]:
    state = await session.inspect(NAME, TIMEOUT)
    return state.size, state.free


@sync_and_async
async def test_all_permits_are_granted_at_once_or_none(session: RedisSession, server: RedisServer) -> None:
    first, second, third = attempt(2, 3), attempt(2, 3), attempt(1, 3)
    answer = await session.acquire(first, TIMEOUT)
    assert isinstance(answer, Granted)
    assert answer.size == 3
    assert isinstance(await session.acquire(second, TIMEOUT), Busy)
    await granted(session, third)
    assert await free(session) == (3, 0)
    await session.release(first, TIMEOUT)
    await granted(session, second)
    for holder in (second, third):
        assert await session.release(holder, TIMEOUT) is Found.OURS
    assert await free(session) == (3, 3)
    assert set(operator(server).scan_iter()) == {b"job"}
    assert endless(server) == []


@sync_and_async
async def test_layout_is_that_of_redisson(session: RedisSession, server: RedisServer) -> None:
    client, holder = operator(server), attempt(2, 5)
    await granted(session, holder)
    assert client.get(NAME) == b"3"
    seconds, _ = client.time()
    found = client.zrange("{job}:timeout", 0, -1, withscores=True)
    assert [len(permit) for permit, _ in found] == [16, 16]
    assert all(30_500 < score - seconds * 1000 < 33_000 for _, score in found), "a second more than the lease"
    listener = client.pubsub()
    listener.subscribe("redisson_sc:{job}")
    listener.get_message(timeout=5.0)
    await session.release(holder, TIMEOUT)
    message = listener.get_message(timeout=5.0)
    assert message is not None
    assert message["data"] == b"5"
    listener.close()


@sync_and_async
async def test_nothing_below_one_is_published(session: RedisSession, server: RedisServer) -> None:
    """Java's listener fails on a negative number."""
    client, holders = operator(server), [attempt(1, 3) for _ in range(3)]
    for holder in holders:
        await granted(session, holder)
    listener = client.pubsub()
    listener.subscribe("redisson_sc:{job}")
    listener.get_message(timeout=5.0)
    await session.resize(NAME, 1, TIMEOUT)
    for holder in holders:
        await session.release(holder, TIMEOUT)
    message = listener.get_message(timeout=5.0)
    assert message is not None
    assert message["data"] == b"1", "the first number above zero"
    listener.close()


@sync_and_async
async def test_large_claim_is_not_overtaken_by_small_ones(session: RedisSession, server: RedisServer) -> None:
    first, second, large, small = attempt(1, 2), attempt(1, 2), attempt(2, 2), attempt(1, 2)
    await granted(session, first)
    await granted(session, second)
    waiting = await queue_up(session, large)
    await session.release(first, TIMEOUT)
    assert isinstance(await session.acquire(small, TIMEOUT), Busy), "one is free, and the head needs two"
    await session.release(second, TIMEOUT)
    assert isinstance(await session.acquire(small, TIMEOUT), Busy)
    await granted(session, large)
    waiting.abandon()


@pytest.mark.usefixtures("only_woken")
@sync_and_async
async def test_two_permits_that_return_wake_two_waiters(session: RedisSession, server: RedisServer) -> None:
    both, first, second = attempt(2, 2), attempt(1, 2), attempt(1, 2)
    await granted(session, both)
    contenders = {each.owner: await queue_up(session, each) for each in (first, second)}
    for each in (first, second):  # both sleep: the first on the semaphore, the second on the first
        await contenders[each.owner].wait(clock.now() + 0.01)
    await session.release(both, TIMEOUT)
    began = clock.now()
    for each in (first, second):
        while isinstance(await session.acquire(each, TIMEOUT), Busy):
            await contenders[each.owner].wait(clock.now() + 30)
    assert clock.now() - began < 10
    for contender in contenders.values():
        contender.abandon()


@sync_and_async
async def test_more_than_it_has_is_impossible(session: RedisSession, server: RedisServer) -> None:
    holder, large = attempt(1, 2), attempt(3, 2)
    await granted(session, holder)
    answer = await session.acquire(large, TIMEOUT)
    assert isinstance(answer, Busy)
    assert answer.impossible is not None
    assert "it has 2" in answer.impossible


@sync_and_async
async def test_head_that_a_smaller_size_makes_impossible_leaves_the_queue(
    session: RedisSession, server: RedisServer
) -> None:
    holder, large, small = attempt(1, 3), attempt(3, 3), attempt(1, 3)
    await granted(session, holder)
    contender = await queue_up(session, large)
    assert isinstance(await session.acquire(small, TIMEOUT), Busy)
    await session.resize(NAME, 2, TIMEOUT)
    await contender.wait(clock.now() + 5)
    answer = await session.acquire(large, TIMEOUT)
    assert isinstance(answer, Busy)
    assert answer.impossible
    assert large.waiter is None
    await granted(session, small)
    contender.abandon()


@sync_and_async
async def test_size_of_the_engine_counts(session: RedisSession, server: RedisServer) -> None:
    await session.resize(NAME, 1, TIMEOUT)
    answer = await session.acquire(attempt(1, 10), TIMEOUT)
    assert isinstance(answer, Granted)
    assert answer.size == 1
    assert isinstance(await session.acquire(attempt(1, 10), TIMEOUT), Busy)
    await session.resize(NAME, 2, TIMEOUT)
    await session.resize(NAME, 2, TIMEOUT)
    await granted(session, attempt(1, 10))
    assert await free(session) == (2, 0)


@sync_and_async
async def test_number_of_free_permits_that_was_evicted_is_made_anew(session: RedisSession, server: RedisServer) -> None:
    holders = [attempt(1, 2) for _ in range(2)]
    for holder in holders:
        await granted(session, holder)
    operator(server).delete(NAME)
    assert isinstance(await session.acquire(attempt(1, 2), TIMEOUT), Busy), "both are out"
    await session.release(holders[0], TIMEOUT)
    assert await free(session) == (2, 1)


@sync_and_async
async def test_semaphore_without_a_size_grants_any_number(session: RedisSession, server: RedisServer) -> None:
    holders = [attempt(1, 0) for _ in range(5)]
    for holder in holders:
        await granted(session, holder)
    state = await session.inspect(NAME, TIMEOUT)
    assert (state.kind, len(state.holders), state.size) == ("semaphore", 5, None)
    assert endless(server) == []
    assert [name async for name in session.names("", TIMEOUT)] == [NAME]
    for holder in holders:
        assert await session.release(holder, TIMEOUT) is Found.OURS
    assert operator(server).keys() == []


@sync_and_async
async def test_repeated_acquire_takes_no_second_permit(session: RedisSession, server: RedisServer) -> None:
    holder = attempt(2, 3, ttl=5.0)
    token = await granted(session, holder)
    holder.claim = holder.claim._replace(ttl=60.0)
    assert await granted(session, holder) == token
    assert await free(session) == (3, 1)
    (_, score), _ = operator(server).zrange("{job}:timeout", 0, -1, withscores=True)
    assert score > operator(server).time()[0] * 1000 + 50_000
    assert await session.release(holder, TIMEOUT) is Found.OURS
    assert await session.release(holder, TIMEOUT) is Found.GONE
    assert await free(session) == (3, 3)


@sync_and_async
async def test_late_duplicate_of_a_withdrawn_claim_is_refused(session: RedisSession, server: RedisServer) -> None:
    holder = attempt(1, 1)
    await granted(session, holder)
    assert await keeper_of(session).withdraw([holder], TIMEOUT) == [Found.OURS]
    assert isinstance(await session.acquire(holder, TIMEOUT), Busy)
    assert await free(session) == (1, 1)


@sync_and_async
async def test_renewal_finds_one_missing_permit(session: RedisSession, server: RedisServer) -> None:
    client, whole, torn = operator(server), attempt(2, 5), attempt(2, 5)
    await granted(session, torn)
    client.zremrangebyrank("{job}:timeout", 0, 0)
    await granted(session, whole)
    keeper = keeper_of(session)
    assert await keeper.renew([whole, torn], 60.0, TIMEOUT) == [Found.OURS, Found.GONE]
    assert await keeper.withdraw([torn], TIMEOUT) == [Found.GONE]
    assert client.zcard("{job}:timeout") == 2, "the rest was withdrawn"
    scores = [score for _, score in client.zrange("{job}:timeout", 0, -1, withscores=True)]
    assert min(scores) > client.time()[0] * 1000 + 50_000
    assert await session.renew(whole, 1.0, TIMEOUT) is Found.OURS
    assert [score for _, score in client.zrange("{job}:timeout", 0, -1, withscores=True)] == scores, "never shortened"


@sync_and_async
async def test_expired_permits_are_taken_back(session: RedisSession, server: RedisServer) -> None:
    dead, late = attempt(1, 1), attempt(1, 1)
    await granted(session, dead)
    (permit,) = operator(server).zrange("{job}:timeout", 0, -1)
    operator(server).zadd("{job}:timeout", {permit: 1})
    await granted(session, late)
    assert await keeper_of(session).renew([dead], 30.0, TIMEOUT) == [Found.GONE]
    assert await free(session) == (1, 0)


@sync_and_async
async def test_dead_head_is_passed_over_within_two_seconds(session: RedisSession, server: RedisServer) -> None:
    holder, dead, late = attempt(1, 2), attempt(2, 2), attempt(1, 2)
    await granted(session, holder)
    (await queue_up(session, dead)).abandon()
    dies_waiting(server, NAME, dead.waiter)
    began = clock.now()
    contender = await queue_up(session, late)
    while isinstance(await session.acquire(late, TIMEOUT), Busy):
        await contender.wait(clock.now() + 10)
    assert clock.now() - began < 0.1 + LATE
    contender.abandon()


@sync_and_async
async def test_break_takes_permits_from_every_holder(session: RedisSession, server: RedisServer) -> None:
    first, second = attempt(2, 3), attempt(1, 3)
    token = await granted(session, first)
    await granted(session, second)
    keeper = keeper_of(session)
    assert await session.break_(NAME, TIMEOUT, token=token)
    assert await keeper.renew([first, second], 30.0, TIMEOUT) == [Found.GONE, Found.OURS]
    assert not await session.break_(NAME, TIMEOUT, token=token)
    assert await session.break_(NAME, TIMEOUT)
    assert await keeper.renew([second], 30.0, TIMEOUT) == [Found.GONE]
    assert await free(session) == (3, 3)


@sync_and_async
async def test_semaphore_of_java_keeps_its_own_ttl(session: RedisSession, server: RedisServer) -> None:
    """Java makes semaphores without an expiry: they must not get one, nor its permits."""
    client, holder = operator(server), attempt(1, 9)
    client.set(NAME, 3)
    client.zadd("{job}:timeout", {bytes(16): NEVER})
    answer = await session.acquire(holder, TIMEOUT)
    assert isinstance(answer, Granted)
    assert answer.size == 4
    await session.renew(holder, 60.0, TIMEOUT)
    assert (client.pttl(NAME), client.pttl("{job}:timeout")) == (-1, -1)
    state = await session.inspect(NAME, TIMEOUT)
    assert {(each.owner, each.until is None) for each in state.holders} == {(holder.owner, False), ("00" * 16, True)}
    await session.release(holder, TIMEOUT)
    assert client.get(NAME) == b"3"


@sync_and_async
async def test_text_that_is_no_number_is_refused(session: RedisSession, server: RedisServer) -> None:
    operator(server).set(NAME, "a lock of another library")
    for answer in (session.acquire(attempt(1, 1), TIMEOUT), session.resize(NAME, 2, TIMEOUT)):
        with pytest.raises(EngineRefused, match="holds a string"):
            await answer
    with pytest.raises(EngineRefused):
        await session.inspect(NAME, TIMEOUT)
    assert command(server, "GET", NAME) == b"a lock of another library"


@sync_and_async
async def test_thousands_of_permits_at_once(session: RedisSession, server: RedisServer) -> None:
    holder = attempt(2500, 3000)
    await granted(session, holder)
    assert await keeper_of(session).renew([holder], 60.0, TIMEOUT) == [Found.OURS]
    assert await session.release(holder, TIMEOUT) is Found.OURS
    assert await free(session) == (3000, 3000)


@sync_and_async
async def test_permits_that_another_program_deleted_are_put_back(session: RedisSession, server: RedisServer) -> None:
    """Else the semaphore would have one permit less for each of them, for ever."""
    client, first, second, late = operator(server), attempt(2, 4), attempt(1, 4), attempt(2, 4)
    await granted(session, first)
    await granted(session, second)
    keeper = keeper_of(session)
    for step in ("acquire", "renew", "release", "resize", "break"):
        client.delete("{job}:timeout")
        if step == "acquire":
            assert isinstance(await session.acquire(late, TIMEOUT), Busy), "three are out"
        elif step == "renew":
            assert await keeper.renew([first, second], 60.0, TIMEOUT) == [Found.OURS, Found.OURS]
        elif step == "release":
            assert await session.release(first, TIMEOUT) is Found.OURS
        elif step == "resize":
            await session.resize(NAME, 3, TIMEOUT)
        else:
            assert await session.break_(NAME, TIMEOUT)
        out = {"acquire": 3, "renew": 3, "release": 1, "resize": 1, "break": 0}[step]
        size = 3 if step in ("resize", "break") else 4
        assert await free(session) == (size, size - out), step
        assert endless(server) == []
    assert await keeper.renew([first, second], 60.0, TIMEOUT) == [Found.GONE, Found.GONE]


@sync_and_async
async def test_permits_of_an_earlier_semaphore_are_not_put_back(session: RedisSession, server: RedisServer) -> None:
    """Java deletes a semaphore and makes it again: all of its permits are free."""
    client, holder = operator(server), attempt(2, 3)
    await granted(session, holder)
    client.delete(NAME, "{job}:timeout")
    client.set(NAME, 3)
    assert await keeper_of(session).renew([holder], 60.0, TIMEOUT) == [Found.GONE]
    await granted(session, attempt(3, 3))
    assert await free(session) == (3, 0)


@sync_and_async
async def test_facts_about_dead_holders_do_not_pile_up(session: RedisSession, server: RedisServer) -> None:
    client, lasting = operator(server), attempt(1, 2)
    await granted(session, lasting)
    for _ in range(10):
        dead = attempt(1, 2, ttl=0.1)
        await granted(session, dead)
        fact = client.hget("holdfast_holders:{job}", dead.owner).split(b" ", 5)
        client.hset("holdfast_holders:{job}", dead.owner, b" ".join([*fact[:4], b"1", fact[5]]))
        (score,) = [each for each, at in client.zrange("{job}:timeout", 0, -1, withscores=True) if at == float(fact[4])]
        client.zadd("{job}:timeout", {score: 1})
    assert client.hlen("holdfast_holders:{job}") <= 4
    assert client.hexists("holdfast_holders:{job}", lasting.owner)
    assert await free(session) == (2, 1)


@sync_and_async
async def test_late_duplicate_of_a_resize_does_not_undo_a_newer_one(session: RedisSession, server: RedisServer) -> None:
    await session.resize(NAME, 2, TIMEOUT, "first")
    await session.resize(NAME, 5, TIMEOUT, "second")
    await session.resize(NAME, 2, TIMEOUT, "first")
    assert await free(session) == (5, 5)
    await session.resize(NAME, 2, TIMEOUT, "third")
    assert await free(session) == (2, 2)
    assert endless(server) == []


def java_takes_one_back(server: RedisServer) -> None:
    """As a Java client with a fast clock does, of a permit that it takes for expired."""
    client = operator(server)
    client.zrem("{job}:timeout", client.zrange("{job}:timeout", 0, 0)[0])
    client.incr(NAME)


def expire_all(server: RedisServer) -> None:
    client = operator(server)
    client.zadd("{job}:timeout", dict.fromkeys(client.zrange("{job}:timeout", 0, -1), 1))


@sync_and_async
async def test_repeated_acquire_takes_each_permit_once_though_some_were_taken_back(
    session: RedisSession, server: RedisServer
) -> None:
    holder = attempt(3, 5)
    await granted(session, holder)
    java_takes_one_back(server)
    await granted(session, holder)
    assert await free(session) == (5, 2)
    await session.release(holder, TIMEOUT)
    assert await free(session) == (5, 5)


@sync_and_async
async def test_repeated_acquire_for_which_too_few_are_left_keeps_none(
    session: RedisSession, server: RedisServer
) -> None:
    holder, other = attempt(2, 2), attempt(1, 2)
    await granted(session, holder)
    java_takes_one_back(server)
    await granted(session, other)
    assert isinstance(await session.acquire(holder, TIMEOUT), Busy)
    assert await free(session) == (2, 1)
    assert not operator(server).hexists("holdfast_holders:{job}", holder.owner)


@sync_and_async
async def test_expired_permits_are_not_revived_by_a_late_renewal(session: RedisSession, server: RedisServer) -> None:
    """Also if no other claim has taken them back yet: a lock that has expired is gone, too."""
    holder = attempt(2, 3)
    await granted(session, holder)
    expire_all(server)
    assert await keeper_of(session).renew([holder], 60.0, TIMEOUT) == [Found.GONE]
    await granted(session, holder)  # a repeat of the acquire takes them anew
    assert await free(session) == (3, 1)
