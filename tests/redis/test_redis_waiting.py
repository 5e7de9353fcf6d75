"""Waiting: which waiters are woken, by which event, and what happens without a wake-up."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import EXCLUSIVE, READ, WRITE, Busy, Granted, RequestFailed, permits
from holdfast.engines.redis.dialect import metadata, waiters
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.engines.redis.session import RedisSession
from holdfast.engines.redis.waiting.contender import RedisContender
from holdfast.engines.redis.waiting.watch import Way
from tests.redis.support import (
    LATE,
    SOON,
    TIMEOUT,
    USERS,
    Other,
    command,
    dies_waiting,
    keeper_of,
    make_attempt,
    on_api,
    sync_and_async,
)
from tests.servers.redis import RedisServer
from tests.support.calls import Later
from tests.support.waiting import eventually


def armed(server: RedisServer, way: Way, name: str = "job", waiters: int = 1) -> Callable[[], object]:
    client = server.client()

    def is_armed() -> bool:
        if client.llen(keys_of(name).queue) < waiters:
            return False
        if way is Way.TRACKING:
            # Each waiter tracks one key; a key shared by several waiters is counted once.
            return bool(client.info("stats")["tracking_total_keys"] >= 1)
        if way is Way.CHANNEL:
            return bool(client.pubsub_numsub(keys_of(name).channel)[0][1] >= waiters)
        return True

    return is_armed


async def acquire_with_timeout(
    session: RedisSession, name: str = "job", seconds: float = 10.0, **keywords: Any
) -> Granted | None:
    """The loop of the core: try, wait, try again."""
    attempt, until = make_attempt(name, **keywords), clock.now() + seconds
    contender = session.contender(attempt, TIMEOUT)
    try:
        while clock.now() < until:
            answer = await session.acquire(attempt, TIMEOUT)
            if isinstance(answer, Granted):
                return answer
            await contender.wait(until)
        return None
    finally:
        await contender.leave()


@pytest.mark.usefixtures("only_woken")
@pytest.mark.parametrize("api", ["sync", "async"])
@pytest.mark.parametrize("way", list(Way), ids=lambda way: way.value)
def test_release_wakes_the_waiter(api: str, way: Way, redis_server: RedisServer) -> None:
    admin = redis_server.client()
    command(redis_server, "ACL", "SETUSER", "waiter", "on", ">pw", "~*", "&*", *USERS[way].split())
    with Other(redis_server.url) as other:

        async def body(session: RedisSession) -> None:
            for _ in range(3):
                held = other.hold("job")
                later = Later(armed(redis_server, way), functools.partial(other.release, held))
                attempt = make_attempt("job")
                contender = session.contender(attempt, TIMEOUT)
                await contender.wait(clock.now() + 10)
                woken = time.monotonic()
                later.join()
                assert 0 <= woken - later.began < SOON
                assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
                await contender.leave()
                await session.release(attempt, TIMEOUT)
            assert session._channel.way is way  # type: ignore[attr-defined]

        on_api(api, redis_server.url_as("waiter", "pw"), body)
    eventually(lambda: admin.pubsub_numsub(keys_of("job").channel)[0][1] == 0)
    assert admin.keys("holdfast_queue:*") == []
    assert admin.keys("holdfast_probe:*") == []
    admin.acl_deluser("waiter")


@sync_and_async
@pytest.mark.usefixtures("only_woken")
async def test_flushall_wakes_the_waiter(session: RedisSession, server: RedisServer) -> None:
    server.client().hset("job", "java:1", 1)
    later = Later(armed(server, Way.TRACKING), server.client().flushall)
    assert await acquire_with_timeout(session) is not None
    later.join()
    assert time.monotonic() - later.began < SOON


@sync_and_async
@pytest.mark.usefixtures("only_woken")
async def test_foreign_delete_wakes_the_waiter(session: RedisSession, server: RedisServer) -> None:
    server.client().hset("job", "java:1", 1)
    later = Later(armed(server, Way.TRACKING), lambda: server.client().delete("job"))
    assert await acquire_with_timeout(session) is not None
    later.join()
    assert time.monotonic() - later.began < SOON


@pytest.mark.usefixtures("only_woken")
@pytest.mark.parametrize("api", ["sync", "async"])
def test_expiry_is_detected_without_a_push(api: str, start_redis: Callable[..., RedisServer]) -> None:
    """A server with many keys pushes an expiry late or never; this one never does."""
    server = start_redis()
    command(server, "DEBUG", "SET-ACTIVE-EXPIRE", 0)

    async def body(session: RedisSession) -> None:
        with Other(server.url) as other:
            other.hold("job", ttl=0.15)
            began = time.monotonic()
            assert await acquire_with_timeout(session) is not None
            assert time.monotonic() - began < 0.15 + SOON

    on_api(api, server.url, body)


@sync_and_async
async def test_waiter_polls_without_any_wakeup(session: RedisSession, server: RedisServer) -> None:
    """SWAPDB pushes and publishes nothing: only the poll detects it."""
    server.client().hset("job", "java:1", 1)
    later = Later(armed(server, Way.TRACKING), lambda: command(server, "SWAPDB", 0, 5))
    assert await acquire_with_timeout(session) is not None
    later.join()
    assert time.monotonic() - later.began < 1.0 + LATE
    command(server, "SWAPDB", 0, 5)


@sync_and_async
@pytest.mark.usefixtures("only_woken")
async def test_wait_ends_at_its_deadline_and_leaves_the_queue(session: RedisSession, server: RedisServer) -> None:
    with Other(server.url) as other:
        other.hold("job")
        began = clock.now()
        assert await acquire_with_timeout(session, seconds=0.2) is None
        assert 0.2 <= clock.now() - began < 0.2 + SOON
        assert server.client().keys("holdfast_queue:*") == []


@sync_and_async
async def test_grant_removes_the_claim_from_the_queue(session: RedisSession, server: RedisServer) -> None:
    with Other(server.url) as other:
        held, attempt = other.hold("job"), make_attempt("job")
        contender = session.contender(attempt, TIMEOUT)
        await contender.wait(clock.now() + 0.01)
        assert server.client().llen("holdfast_queue:{job}") == 1
        other.release(held)
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
        assert server.client().keys("holdfast_queue:*") == []
        contender.abandon()


@sync_and_async
async def test_withdrawal_removes_the_claim_from_the_queue(session: RedisSession, server: RedisServer) -> None:
    with Other(server.url) as other:
        other.hold("job")
        attempt = make_attempt("job")
        contender = session.contender(attempt, TIMEOUT)
        await contender.wait(clock.now() + 0.01)
        contender.abandon()
        await keeper_of(session).withdraw([attempt], TIMEOUT)
        assert server.client().keys("holdfast_queue:*") == []


@sync_and_async
async def test_claim_that_was_withdrawn_does_not_join_the_queue(session: RedisSession, server: RedisServer) -> None:
    """The withdrawal has its own connection, and overtakes the request of a task that was cancelled."""
    for mode in (EXCLUSIVE, READ, WRITE, permits(1, 1)):
        name = f"job-{mode.label}"
        attempt = make_attempt(name, mode=mode)
        waiter = attempt.waiter = waiters.new_waiter(mode)
        about = metadata.waiter_about(attempt.owner, attempt.claim.description)
        await keeper_of(session).withdraw([attempt], TIMEOUT)
        late = waiters.encode_enqueue(name, waiter, front=1, about=about)
        assert not waiters.decode_enqueue(await session._channel.run(late, TIMEOUT)).queued
        assert isinstance(await session.acquire(make_attempt(name, mode=mode), TIMEOUT), Granted)
    assert server.client().keys("holdfast_queue:*") == []


@sync_and_async
async def test_unnoticed_grant_removes_the_claim_from_the_queue(session: RedisSession, server: RedisServer) -> None:
    """A late acquire is granted while the claim already waits again: the next try finds its own lock."""
    with Other(server.url) as other:
        held, attempt = other.hold("job"), make_attempt("job")
        contender = session.contender(attempt, TIMEOUT)
        await contender.wait(clock.now() + 0.01)
        other.release(held)
        waiter, attempt.waiter = attempt.waiter, None
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
        attempt.waiter = waiter
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
        assert server.client().keys("holdfast_queue:*") == []
        contender.abandon()


class WaitingClaims:
    """Waiters of one name, in its queue; no thread drives them."""

    def __init__(self, other: Other, name: str, count: int, **keywords: Any) -> None:
        self.claims = [make_attempt(name, **keywords) for _ in range(count)]
        self.contenders = [other.session.contender(attempt, TIMEOUT) for attempt in self.claims]
        for contender in self.contenders:
            run(contender.wait(clock.now() + 0.005))

    def close(self) -> None:
        for contender in self.contenders:
            run(contender.leave())


@sync_and_async
async def test_fair_claim_does_not_overtake_live_waiters(session: RedisSession, server: RedisServer) -> None:
    with Other(server.url) as other:
        other.hold("job")
        waiting = WaitingClaims(other, "job", 2, fair=True)
        server.client().delete("job")
        late = make_attempt("job", fair=True)
        assert await session.acquire(late, TIMEOUT) == Busy(None)
        assert isinstance(run(other.session.acquire(waiting.claims[1], TIMEOUT)), Busy)
        assert isinstance(run(other.session.acquire(waiting.claims[0], TIMEOUT)), Granted)
        other.release(waiting.claims[0])
        assert isinstance(run(other.session.acquire(waiting.claims[1], TIMEOUT)), Granted)
        other.release(waiting.claims[1])
        assert isinstance(await session.acquire(late, TIMEOUT), Granted)
        waiting.close()


@sync_and_async
async def test_non_barging_claim_yields_once_and_unfair_claim_does_not(
    session: RedisSession, server: RedisServer
) -> None:
    with Other(server.url) as other:
        other.hold("job")
        waiting = WaitingClaims(other, "job", 1)
        server.client().delete("job")
        assert isinstance(await session.acquire(make_attempt("job", non_barging=True), TIMEOUT), Busy)
        assert isinstance(await session.acquire(make_attempt("job"), TIMEOUT), Granted)
        waiting.close()


@sync_and_async
async def test_dead_waiters_are_skipped(session: RedisSession, server: RedisServer) -> None:
    """More dead waiters than one call removes: a few calls do."""
    client = server.client()
    client.rpush("holdfast_queue:{job}", *(f"dead{number}" for number in range(250)))
    fair = make_attempt("job", fair=True)
    answers = [await session.acquire(fair, TIMEOUT) for _ in range(3)]
    assert [type(answer) for answer in answers] == [Busy, Busy, Granted]
    assert client.exists("holdfast_queue:{job}") == 0


@sync_and_async
async def test_waiter_removes_dead_predecessors(session: RedisSession, server: RedisServer) -> None:
    client = server.client()
    with Other(server.url) as other:
        held = other.hold("job")
        client.rpush("holdfast_queue:{job}", *(f"dead{number}" for number in range(150)))
        later = Later(lambda: client.llen("holdfast_queue:{job}") == 1, lambda: other.release(held))
        assert await acquire_with_timeout(session, fair=True) is not None
        later.join()


@sync_and_async
async def test_third_waiter_watches_the_second(session: RedisSession, server: RedisServer) -> None:
    """A release wakes the first two; the third sleeps until the second has left."""
    with Other(server.url) as other:
        held = other.hold("job")
        waiting = WaitingClaims(other, "job", 2)
        attempt = make_attempt("job")
        contender = session.contender(attempt, TIMEOUT)
        began = clock.now()
        later = Later(lambda: server.client().llen("holdfast_queue:{job}") == 3, lambda: other.release(held))
        await contender.wait(began + 5)
        later.join()
        assert clock.now() - began >= 0.5  # woken by its own poll, not by the release
        await contender.leave()
        waiting.close()


@sync_and_async
@pytest.mark.usefixtures("only_woken")
async def test_departure_of_the_predecessor_wakes_the_waiter(session: RedisSession, server: RedisServer) -> None:
    with Other(server.url) as other:
        held = other.hold("job")
        waiting = WaitingClaims(other, "job", 1, fair=True)

        def go() -> None:
            other.release(held)
            waiting.close()

        later = Later(armed(server, Way.TRACKING, waiters=2), go)
        assert await acquire_with_timeout(session, fair=True) is not None
        later.join()
        assert time.monotonic() - later.began < SOON


@sync_and_async
@pytest.mark.usefixtures("hurried")
async def test_waiter_considered_dead_joins_under_a_new_id(session: RedisSession, server: RedisServer) -> None:
    client = server.client()
    with Other(server.url) as other:
        other.hold("job")
        attempt = make_attempt("job")
        contender = session.contender(attempt, TIMEOUT)
        await contender.wait(clock.now() + 0.01)
        first = attempt.waiter
        client.delete(f"holdfast_queue:{{job}}:{first}")  # as if it had been frozen past its TTL
        for _ in range(2):  # it asks once, since it may have been given the lock
            await contender.wait(clock.now() + 0.01)
        assert attempt.waiter != first
        assert client.lrange("holdfast_queue:{job}", 0, -1) == [str(attempt.waiter).encode()]
        await contender.leave()


@sync_and_async
@pytest.mark.usefixtures("hurried")
async def test_waiter_refreshes_its_key_after_a_quarter_of_its_ttl(session: RedisSession, server: RedisServer) -> None:
    client = server.client()
    with Other(server.url) as other:
        other.hold("job")
        attempt = make_attempt("job")
        contender = session.contender(attempt, TIMEOUT)
        await contender.wait(clock.now() + 0.01)
        key = f"holdfast_queue:{{job}}:{attempt.waiter}"
        client.pexpire(key, 100_000)
        await contender.wait(clock.now() + 0.01)
        assert client.pttl(key) > 90_000, "each refresh wakes the waiter behind: not with every look"
        client.pexpire(key, 1_499)
        await contender.wait(clock.now() + 0.01)
        assert 1_500 < client.pttl(key) <= 2_000
        assert 2_000 < client.pttl("holdfast_queue:{job}") <= 4_000
        await contender.leave()


@pytest.mark.parametrize("fair", [False, True], ids=["unfair", "fair"])
def test_many_tasks_and_threads_share_one_lock(fair: bool, redis_server: RedisServer) -> None:
    """Every waiter is served, and the lock never has two holders."""
    inside = 0
    turns: list[int] = []

    async def worker(session: RedisSession) -> None:
        nonlocal inside
        for _ in range(5):
            attempt = make_attempt("job", fair=fair)
            contender = session.contender(attempt, TIMEOUT)
            while not isinstance(answer := await session.acquire(attempt, TIMEOUT), Granted):
                await contender.wait(clock.now() + 10)
            await contender.leave()
            inside += 1
            assert inside == 1
            turns.append(answer.token)
            inside -= 1
            await session.release(attempt, TIMEOUT)

    async def main(session: RedisSession) -> None:
        await asyncio.gather(*(worker(session) for _ in range(10)))

    with Other(redis_server.url) as other:
        thread = Later(lambda: True, lambda: run(worker(other.session)))
        on_api("async", redis_server.url, main)
        thread.join()
    assert len(turns) == 55
    assert turns == sorted(set(turns))


@pytest.mark.usefixtures("only_woken")
@pytest.mark.parametrize("api", ["sync", "async"])
def test_loss_of_the_connection_ends_the_wait(api: str, redis_server: RedisServer) -> None:
    client = redis_server.client()

    async def body(session: RedisSession) -> None:
        with Other(redis_server.url) as other:
            other.hold("job")

            def cut() -> None:
                for entry in client.client_list():
                    if int(entry["id"]) != client.client_id():
                        client.client_kill_filter(_id=entry["id"])

            later = Later(armed(redis_server, Way.TRACKING), cut)
            contender = session.contender(make_attempt("job"), TIMEOUT)
            await contender.wait(clock.now() + 10)
            woken = time.monotonic()
            later.join()
            assert 0 <= woken - later.began < SOON
            await contender.wait(clock.now() + 0.01)  # continues on a new connection
            await contender.leave()

    on_api(api, redis_server.url, body)


@pytest.mark.parametrize("api", ["sync", "async"])
def test_unreachable_server_ends_the_wait_with_an_error(api: str, start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()

    async def body(session: RedisSession) -> None:
        contender: RedisContender = session.contender(make_attempt("job"), TIMEOUT)
        server.client().hset("job", "java:1", 1)
        await contender.wait(clock.now() + 0.01)
        server.kill()
        eventually(lambda: not server.running)
        with pytest.raises(RequestFailed):
            await contender.wait(clock.now() + 5)
        await contender.leave()

    on_api(api, server.url, body)


@pytest.mark.usefixtures("only_woken")
def test_refused_probe_does_not_refuse_the_lock(redis_server: RedisServer) -> None:
    """An ACL that allows the keys of the lock but not the probe: fall back instead of failing."""
    admin = redis_server.client()
    keys = ["~job", "~redisson_lock_token:{job}", "~holdfast_owner:{job}", "~holdfast_queue:{job}*", "~holdfast_lock:*"]
    command(redis_server, "ACL", "SETUSER", "narrow", "on", ">pw", *keys, "&redisson_lock__channel:*", "+@all")

    async def body(session: RedisSession) -> None:
        with Other(redis_server.url) as other:
            held = other.hold("job")
            later = Later(armed(redis_server, Way.CHANNEL), lambda: other.release(held))
            assert await acquire_with_timeout(session) is not None
            later.join()
            assert time.monotonic() - later.began < SOON

    on_api("sync", redis_server.url_as("narrow", "pw"), body)
    admin.acl_deluser("narrow")


@sync_and_async
@pytest.mark.usefixtures("hurried")
async def test_dead_head_of_a_fair_queue_costs_two_seconds_at_most(session: RedisSession, server: RedisServer) -> None:
    with Other(server.url) as other:
        other.hold("job")
        dead = make_attempt("job", fair=True)
        contender = other.session.contender(dead, TIMEOUT)
        run(contender.wait(clock.now() + 0.01))
        contender.abandon()
        dies_waiting(server, "job", dead.waiter)
        server.client().delete("job")
        began = clock.now()
        assert await acquire_with_timeout(session, fair=True) is not None
        assert clock.now() - began < 0.1 + LATE


@sync_and_async
@pytest.mark.usefixtures("hurried")
async def test_waiter_that_was_taken_for_dead_joins_again_and_excludes(
    session: RedisSession, server: RedisServer
) -> None:
    """A stall of its loop longer than its key's life: it loses its place, and gets the lock in its turn."""
    client = server.client()
    with Other(server.url) as other:
        held = other.hold("job")
        slow, next_ = make_attempt("job", fair=True), make_attempt("job", fair=True)
        stalled, behind = session.contender(slow, TIMEOUT), session.contender(next_, TIMEOUT)
        await stalled.wait(clock.now() + 0.01)
        await behind.wait(clock.now() + 0.01)
        client.delete(keys_of("job").waiter(slow.waiter or ""))  # expired
        other.release(held)
        assert isinstance(await session.acquire(next_, TIMEOUT), Granted), "it passed the stalled one"
        assert isinstance(await session.acquire(slow, TIMEOUT), Busy)
        for _ in range(2):
            await stalled.wait(clock.now() + 0.01)
        assert client.lrange(keys_of("job").queue, 0, -1) == [(slow.waiter or "").encode()]
        await session.release(next_, TIMEOUT)
        assert isinstance(await session.acquire(slow, TIMEOUT), Granted)
        for contender in (stalled, behind):
            contender.abandon()
