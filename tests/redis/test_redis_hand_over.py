"""A release hands the lock over to the first waiter, and pushes the token to it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast.engines.base import Busy, Found, Granted, Handed, RequestFailed
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.engines.redis.dialect.leases import tombstone_for
from holdfast.engines.redis.session import RedisSession
from tests.redis.support import (
    LATE,
    SOON,
    TIMEOUT,
    Other,
    calls,
    command,
    keeper_of,
    make_attempt,
    on_api,
    sync_and_async,
)
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication
from tests.support.calls import Call
from tests.support.child import Child
from tests.support.waiting import eventually

KEYS = keys_of("job")


async def joined(session: RedisSession, attempt: RedlockAttempt) -> None:
    """It is in the queue, and has not been pushed anything."""
    assert await session.contender(attempt, TIMEOUT).wait(clock.now() + 0.001) is None
    assert attempt.entry is not None


@sync_and_async
@pytest.mark.usefixtures("only_woken", "only_waits")
async def test_release_grants_the_first_waiter_without_a_request_of_its_own(
    session: RedisSession, server: RedisServer
) -> None:
    client = server.client()
    with Other(server.url) as other:
        held, attempt, second = other.hold("job"), make_attempt("job", tokens=3), make_attempt("job")
        before = clock.now()
        for each in (attempt, second):
            await joined(session, each)
        client.config_resetstat()
        other.release(held)
        handed = await session.contender(attempt, TIMEOUT).wait(clock.now() + SOON)
        assert handed is not None
        assert "evalsha" in calls(server)
        assert calls(server)["evalsha"] == 1, "the release"
        assert handed.token == int(client.get(KEYS.token) or 0)
        assert before <= handed.sent <= clock.now()
        assert handed.lease == 2.0
        assert client.hkeys("job") == [attempt.owner.encode()]
        assert 0 < client.pttl("job") <= 2000, "it may have died"
        assert client.lrange(KEYS.queue, 0, -1) == [second.entry]
        assert isinstance(await session.acquire(make_attempt("job"), TIMEOUT), Busy)
        assert (await session.inspect("job", TIMEOUT)).holders[0].token == handed.token - 2
        assert await session.renew(attempt, 30.0, TIMEOUT) is Found.OURS
        assert client.pttl("job") > 25_000
        assert await session.release(attempt, TIMEOUT) is Found.OURS
        assert client.hkeys("job") == [second.owner.encode()]
        for each in (attempt, second):
            each.abandon()


@sync_and_async
async def test_claim_that_missed_the_push_finds_what_it_was_handed(session: RedisSession, server: RedisServer) -> None:
    client = server.client()
    with Other(server.url) as other:
        held, attempt = other.hold("job"), make_attempt("job")
        await joined(session, attempt)
        attempt.abandon()  # with the connection, the push is lost
        other.release(held)
        token = int(client.get(KEYS.token) or 0)
        assert await session.acquire(attempt, TIMEOUT) == Granted(token)
        assert client.pttl("job") > 25_000


@sync_and_async
async def test_waiter_whose_connection_is_lost_joins_again(session: RedisSession, server: RedisServer) -> None:
    client = server.client()
    with Other(server.url) as other:
        held, attempt = other.hold("job"), make_attempt("job")
        contender = session.contender(attempt, TIMEOUT)
        await joined(session, attempt)
        first = attempt.entry
        client.client_kill_filter(_type="pubsub")
        while attempt.entry == first:
            with contextlib.suppress(RequestFailed):  # it may have been asking when the connection was lost
                await contender.wait(clock.now() + 0.01)
        assert [entry[:16] for entry in client.lrange(KEYS.queue, 0, -1)] == [(attempt.waiter or "").encode()]
        other.release(held)
        assert isinstance(await contender.wait(clock.now() + SOON), Handed)
        contender.abandon()


@sync_and_async
async def test_push_to_another_claim_is_ignored(session: RedisSession, server: RedisServer) -> None:
    with Other(server.url) as other:
        other.hold("job")
        attempt = make_attempt("job")
        await joined(session, attempt)
        wire = (attempt.entry or b"").split()[1][1:].decode()
        waiter, owner = attempt.waiter, attempt.owner
        for payload in (f"{waiter} 01234567:7 1234", f"0123456789abcdef {owner} 1234", f"{waiter} {owner}", "0", ""):
            assert server.client().publish(f"holdfast_wake:{wire}", payload) == 1
        assert await session.contender(attempt, TIMEOUT).wait(clock.now() + 0.02) is None
        attempt.abandon()


@sync_and_async
async def test_waiter_that_leaves_gives_back_what_it_was_handed(session: RedisSession, server: RedisServer) -> None:
    client = server.client()
    with Other(server.url) as other:
        held, attempt, second = other.hold("job"), make_attempt("job"), make_attempt("job")
        for each in (attempt, second):
            await joined(session, each)
        other.release(held)
        assert await session.contender(attempt, TIMEOUT).leave()
        assert client.hkeys("job") == [second.owner.encode()], "it passes to the next one"
        assert await session.contender(second, TIMEOUT).leave()
        assert client.keys("*job*") == [KEYS.token.encode()]


@sync_and_async
async def test_withdrawn_waiter_is_handed_nothing(session: RedisSession, server: RedisServer) -> None:
    client = server.client()
    with Other(server.url) as other:
        held, attempt = other.hold("job"), make_attempt("job")
        await joined(session, attempt)
        entry = attempt.entry
        assert entry is not None
        assert await keeper_of(session).withdraw([attempt], TIMEOUT) == [Found.STOLEN]
        attempt.abandon()
        client.rpush(KEYS.queue, entry)  # a late duplicate of its request
        other.release(held)
        assert not client.exists("job", KEYS.queue)


@sync_and_async
async def test_repeated_request_joins_once(session: RedisSession, server: RedisServer) -> None:
    """A duplicate on the way: the second entry is dropped when the claim releases the lock."""
    client = server.client()
    with Other(server.url) as other:
        held, attempt = other.hold("job"), make_attempt("job")
        await joined(session, attempt)
        client.rpush(KEYS.queue, attempt.entry or b"")
        other.release(held)
        assert await session.release(attempt, TIMEOUT) is Found.OURS
        assert not client.exists("job", KEYS.queue)
        attempt.abandon()


@sync_and_async
async def test_lock_is_freed_where_it_cannot_be_handed_over(session: RedisSession, server: RedisServer) -> None:
    client = server.client()
    with Other(server.url) as other:
        held, attempt = other.hold("job"), make_attempt("job")
        await joined(session, attempt)
        client.set(KEYS.token, "not a number")
        other.release(held)
        assert not client.exists("job")
        # On a busy machine it has waited for long enough to have a key: then its entry is its id alone.
        (place,) = client.lrange(KEYS.queue, 0, -1)
        assert attempt.waiter is not None
        assert place.split()[0] == attempt.waiter.encode(), "it keeps its place"
        client.delete(KEYS.token)
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
        attempt.abandon()


@sync_and_async
async def test_claim_that_may_join_late_is_withdrawn_for_longer_than_its_ttl(
    session: RedisSession, server: RedisServer
) -> None:
    """A request that was held up joins the queue when it arrives: then a release would hand the lock over to it."""
    with Other(server.url) as other:
        held, attempt = other.hold("job"), make_attempt("job")
        assert attempt.withdrawn_for == attempt.claim.ttl
        await joined(session, attempt)
        assert attempt.withdrawn_for == tombstone_for(attempt.claim.ttl) > attempt.claim.ttl
        attempt.abandon()
        other.release(held)


def test_release_that_may_not_push_wakes_the_waiter(redis_server: RedisServer) -> None:
    """An ACL of the one that releases, without the channels of waiters."""
    command(redis_server, "ACL", "SETUSER", "narrow", "on", ">pw", "~*", "+@all", "&redisson_lock__channel:*")
    with Other(redis_server.url_as("narrow", "pw")) as other, holdfast.connect(redis_server.url) as locks:
        held = other.hold("job")
        waiting = Call(lambda: locks.lock("job").acquire(timeout=SOON))
        eventually(lambda: redis_server.client().llen(KEYS.queue) == 1)
        other.release(held)
        waiting.result(SOON + LATE).release()
    redis_server.client().acl_deluser("narrow")


@pytest.mark.parametrize("way", ["-subscribe", "resetchannels"])
def test_waiter_that_may_not_subscribe_competes(way: str, redis_server: RedisServer) -> None:
    command(redis_server, "ACL", "SETUSER", "waits", "on", ">pw", "~*", "&*", "+@all", way)

    async def body(session: RedisSession) -> None:
        with Other(redis_server.url) as other:
            held, attempt = other.hold("job"), make_attempt("job")
            contender = session.contender(attempt, TIMEOUT)
            await contender.wait(clock.now() + 0.01)
            assert attempt.entry is None
            other.release(held)
            assert not redis_server.client().exists("job")
            assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
            contender.abandon()

    on_api("sync", redis_server.url_as("waits", "pw"), body)
    redis_server.client().acl_deluser("waits")


# -- what the caller sees ----------------------------------------------------------------------------------------------


def handed(server: RedisServer, locks: holdfast.Client, **keywords: object) -> holdfast.Lease:
    """A lease that was handed over."""
    with locks.lock("warm"):
        pass  # its watchdog runs
    with Other(server.url) as other:
        held = other.hold("job")
        waiting = Call(lambda: locks.lock("job", **keywords).acquire(timeout=SOON))  # type: ignore[arg-type]
        eventually(lambda: server.client().llen(KEYS.queue) == 1)
        other.release(held)
        lease: holdfast.Lease = waiting.result(SOON + LATE)
    return lease


def test_handed_over_lease_is_confirmed_soon(redis_server: RedisServer) -> None:
    with holdfast.connect(redis_server.url) as locks:
        lease = handed(redis_server, locks)
        assert lease.token == int(redis_server.client().get(KEYS.token) or 0)
        eventually(lambda: lease.remaining > 20)
        assert redis_server.client().pttl("job") > 20_000
        lease.release()


@pytest.mark.parametrize("keywords", [{"renew": False}, {"max_hold": 20.0}], ids=str)
def test_lease_that_is_not_renewed_is_never_a_short_one(keywords: dict[str, float], redis_server: RedisServer) -> None:
    with holdfast.connect(redis_server.url) as locks:
        lease = handed(redis_server, locks, **keywords)
        assert lease.remaining > 15
        assert redis_server.client().pttl("job") > 15_000
        lease.release()


def test_blocked_event_loop_keeps_what_it_was_handed(redis_server: RedisServer) -> None:
    async def main() -> None:
        async with holdfast.aio.connect(redis_server.url) as locks:
            async with locks.lock("warm"):
                pass
            with Other(redis_server.url) as other:
                held = other.hold("job")
                waiting = asyncio.create_task(locks.lock("job").acquire(timeout=SOON))
                while redis_server.client().llen(KEYS.queue) == 0:
                    await asyncio.sleep(0.001)
                other.release(held)
                lease = await waiting
            time.sleep(2.5)  # noqa: ASYNC251  (the body, longer than the lease that was handed over)
            lease.check()
            await lease.release()

    asyncio.run(main())


def test_caller_that_times_out_at_the_push_leaves_nothing(redis_server: RedisServer) -> None:
    """Time-outs all around the moment of the release: the lock is always free afterwards."""
    client = redis_server.client()
    with holdfast.connect(redis_server.url) as locks, Other(redis_server.url) as other:
        for step in range(12):
            held, began = other.hold("job"), clock.now()
            waiting = Call(lambda: locks.lock("job").acquire(timeout=0.1))
            eventually(lambda: client.llen(KEYS.queue) == 1 or waiting.done)  # noqa: B023
            while clock.now() < began + 0.1 + (step - 6) * 0.001:
                pass
            other.release(held)
            try:
                waiting.result().release()
            except (holdfast.AcquireTimeout, holdfast.EngineUnavailable):  # no answer in so short a time
                pass
            eventually(lambda: not client.exists("job", KEYS.queue))


def test_task_that_is_cancelled_at_the_push_leaves_nothing(redis_server: RedisServer) -> None:
    client = redis_server.client()

    async def main() -> None:
        async with holdfast.aio.connect(redis_server.url) as locks:
            with Other(redis_server.url) as other:
                for step in range(12):
                    held = other.hold("job")
                    waiting = asyncio.create_task(locks.lock("job").acquire(timeout=SOON))
                    while client.llen(KEYS.queue) == 0:
                        await asyncio.sleep(0.001)
                    other.release(held)
                    for _ in range(step % 6):  # turns of the loop
                        await asyncio.sleep(0)
                    waiting.cancel()
                    try:
                        await (await waiting).release()
                    except asyncio.CancelledError:
                        pass
                    eventually(lambda: not client.exists("job", KEYS.queue))

    asyncio.run(main())


# -- heads that die or freeze ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [Child.kill, Child.freeze])
@pytest.mark.parametrize("after", [0.0, 0.3], ids=["early", "late"])
def test_dead_or_frozen_head_costs_two_seconds_at_most(
    redis_server: RedisServer, ends: Callable[[Child], None], after: float
) -> None:
    client = redis_server.client()
    with Child(redis_server.url) as child, Other(redis_server.url) as other, contextlib.ExitStack() as ending:
        held = other.hold("job")
        child.send("keep.update(lease=locks.lock('job').acquire()) or 1")
        eventually(lambda: client.llen(KEYS.queue) == 1)
        if after:  # it watches the lock, too
            eventually(lambda: len(client.lrange(KEYS.queue, 0, -1)[0]) == 16)
        ends(child)
        ending.callback(child.kill)
        other.release(held)
        began = time.monotonic()
        with holdfast.connect(redis_server.url) as locks, locks.lock("job"):
            assert time.monotonic() - began < 2.0 + LATE


def test_process_killed_with_many_waiters_costs_nothing(redis_server: RedisServer) -> None:
    client = redis_server.client()
    thread = "__import__('threading').Thread(target=locks.lock('job', fair=True).acquire, daemon=True)"
    start = f"[{thread}.start() for _ in range(20)] and 1"
    with Child(redis_server.url) as child, Other(redis_server.url) as other:
        held = other.hold("job")
        child.do(start)
        eventually(lambda: client.llen(KEYS.queue) == 20)
        child.kill()
        eventually(lambda: len(client.pubsub_channels("holdfast_wake:*")) == 0)
        began = time.monotonic()
        other.release(held)
        assert not client.exists("job", KEYS.queue)
        assert time.monotonic() - began < LATE


def test_push_that_replicas_may_have_passed_on_is_not_taken_back(pair: Replication) -> None:
    """A waiter may be connected to a server that is a replica now: the count does not show it. It may hold the lock."""
    client = pair.master.client()
    with Other(pair.master.url) as other:
        held = other.hold("job")
        owners = [f"0123456789abcdef:{10**17 + number}" for number in range(3)]
        for number, owner in enumerate(owners):
            client.rpush(KEYS.queue, f"{number:016x} p{number:016x} 2000 1.000000 1 0 {owner} {{}}")
        other.release(held)
        assert client.hkeys("job") == [owners[0].encode()]
        assert 0 < client.pttl("job") <= 2000
        client.pexpire("job", 1)
        eventually(lambda: not client.exists("job"))
        other.release(other.hold("job"))
        assert not client.exists("job", KEYS.queue), "the others are asked for first"


def test_frozen_head_that_wakes_up_does_not_hold(redis_server: RedisServer) -> None:
    client = redis_server.client()
    with Child(redis_server.url) as child, Other(redis_server.url) as other:
        child.do("locks.lock('warm').acquire().release() or 1")
        held = other.hold("job")
        child.send("keep.update(lease=locks.lock('job').acquire()) or keep['lease'].token")
        eventually(lambda: client.llen(KEYS.queue) == 1)
        child.freeze()
        other.release(held)
        with holdfast.connect(redis_server.url) as locks:
            lease = locks.lock("job").acquire()
            child.wake()
            eventually(lambda: client.llen(KEYS.queue) == 1)  # it has asked, and has joined again
            lease.check()
            token = lease.token
            lease.release()
        assert child.answer() > token
        child.do("keep['lease'].release() or 1")


_HAMMER = """(lambda r: [(lambda lease: (lambda n: r.set('register', n + 1))(int(r.get('register') or 0))
 and lease.release())(locks.lock('job').acquire()) for _ in range(150)] and 1)(
__import__('redis').Redis.from_url(URL))"""


def test_processes_that_hand_a_register_over_lose_no_update(redis_server: RedisServer) -> None:
    with contextlib.ExitStack() as ending:
        children = [ending.enter_context(Child(redis_server.url)) for _ in range(8)]
        for child in children:
            child.send(_HAMMER.replace("URL", repr(redis_server.url)).replace("\n", ""))
        assert [child.answer() for child in children] == [1] * 8
    assert int(redis_server.client().get("register") or 0) == 8 * 150


@sync_and_async
async def test_waiter_in_line_is_served_before_a_claim_that_waits_in_another_way(
    session: RedisSession, server: RedisServer
) -> None:
    """Of an older version, or of a user that may not subscribe: it has no seat, and is at the front."""
    client = server.client()
    with Other(server.url) as other:
        held, attempt = other.hold("job"), make_attempt("job")
        client.rpush(KEYS.queue, "0123456789abcdef")
        client.set(KEYS.waiter("0123456789abcdef"), "1.000000 0123:4 {}", px=2000)
        await joined(session, attempt)
        other.release(held)
        assert not client.exists("job"), "it finds the lock free"
        assert client.lindex(KEYS.queue, 0) == b"0123456789abcdef"
        client.delete(KEYS.waiter("0123456789abcdef"))  # it has died
        other.release(other.hold("job"))
        assert client.hkeys("job") == [attempt.owner.encode()]
        attempt.abandon()
