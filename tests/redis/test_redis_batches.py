"""Batches of claims in one round trip, withdrawn or watched; and a watchdog that cannot connect."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast._runtime.asyncio import AsyncioRuntime
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import ALL_NAMES, Found, Granted, RequestFailed, Suspects
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.engine import connect
from holdfast.engines.redis.scripts import RELEASE
from holdfast.engines.redis.session import RedisSession
from holdfast.errors import EngineRefused
from holdfast.testing.proxy import FaultProxy
from tests.redis.support import LATE, TIMEOUT, Other, calls, command, full, keeper_of, make_attempt, sync_and_async
from tests.servers.redis import RedisServer
from tests.support.calls import Later
from tests.support.waiting import eventually, renewed, until


class Watchdog(Other):
    """A client with a keeper that waits for hints first, as the watchdog does."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.keeper = self.engine.keeper(BLOCKING)
        self.wakeup = BLOCKING.wakeup()
        self.hints(0.0)

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        run(self.keeper.close())
        self.wakeup.close()

    def hints(self, seconds: float = 5.0) -> Suspects:
        return run(self.keeper.wait_for_hints(clock.now() + seconds, self.wakeup))

    def watch(self, *attempts: RedlockAttempt) -> list[Found | RequestFailed]:
        return list(run(self.keeper.watch(attempts, TIMEOUT)))


def hold_many(url: str, count: int) -> list[RedlockAttempt]:
    """Acquires as many claims with one client."""

    async def main() -> list[RedlockAttempt]:
        session = connect(url, {}).session(AsyncioRuntime())
        attempts = [make_attempt(f"job-{number}") for number in range(count)]
        for start in range(0, count, 500):
            granted = await asyncio.gather(
                *(session.acquire(attempt, TIMEOUT) for attempt in attempts[start : start + 500])
            )
            assert all(isinstance(each, Granted) for each in granted)
        await session.close()
        return attempts

    return asyncio.run(main())


# ---- withdrawing


@sync_and_async
async def test_batch_of_claims_is_withdrawn_with_an_answer_for_each(session: RedisSession, server: RedisServer) -> None:
    ours, gone, stolen, foreign, waits = (make_attempt(name) for name in ("a", "b", "c", "d", "e"))
    for attempt in (ours, gone, stolen, foreign):
        await session.acquire(attempt, TIMEOUT)
    client = server.client()
    with Other(server.url) as other:
        held = other.hold("e")
        contender = session.contender(waits, TIMEOUT)
        await contender.wait(clock.now() + 0.01)
        client.delete("b", "c", "d")
        other.hold("c")
        client.set("d", "another library's")
        found = await keeper_of(session).withdraw([ours, gone, stolen, foreign, waits], TIMEOUT)
        assert found == [Found.OURS, Found.GONE, Found.STOLEN, Found.STOLEN, Found.STOLEN]
        assert client.exists("a", "holdfast_owner:{a}", "holdfast_queue:{e}") == 0
        for attempt in (ours, gone, stolen, foreign, waits):
            assert client.pttl(f"holdfast_lock:{{{attempt.claim.name}}}:gone:{attempt.owner}") > 50_000
        contender.abandon()
        other.release(held)


@sync_and_async
async def test_leftovers_of_earlier_attempts_are_withdrawn(session: RedisSession, server: RedisServer) -> None:
    attempt = make_attempt("job")
    await session.acquire(attempt, TIMEOUT)
    first = attempt.owner
    attempt.reissue(lingers=True)
    assert await keeper_of(session).withdraw([attempt], TIMEOUT) == [Found.STOLEN]  # by its own first attempt
    assert attempt.leftovers == ()
    assert not server.client().exists("job")
    assert server.client().exists(*(f"holdfast_lock:{{job}}:gone:{owner}" for owner in (first, attempt.owner))) == 2


@sync_and_async
async def test_withdrawn_claim_wakes_the_next_waiter(
    session: RedisSession, server: RedisServer, only_woken: None
) -> None:
    attempt, waits, client = make_attempt("job"), make_attempt("job"), server.client()
    await session.acquire(attempt, TIMEOUT)
    with Other(server.url) as other:
        later = Later(
            lambda: client.info("stats")["tracking_total_keys"] >= 1,
            lambda: run(other.keeper.withdraw([attempt], TIMEOUT)),
        )
        contender = session.contender(waits, TIMEOUT)
        await contender.wait(clock.now() + 30)
        assert isinstance(await session.acquire(waits, TIMEOUT), Granted)
        later.join()
        await contender.leave()


def test_batch_is_one_round_trip(redis_server: RedisServer) -> None:
    """All claims are withdrawn while the first reply is still in flight."""
    attempts = hold_many(redis_server.url, 200)
    with FaultProxy(redis_server.host, redis_server.port) as proxy, Watchdog(proxy.url) as watchdog:
        assert run(watchdog.keeper.withdraw(attempts[:1], TIMEOUT)) == [Found.OURS]  # connects and loads the script
        held_back = proxy.on(script=RELEASE).delay()
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.extend(run(watchdog.keeper.withdraw(attempts, 30.0))))
        thread.start()
        eventually(lambda: not list(redis_server.client().scan_iter("job-*", count=1000)))
        assert not found
        held_back.release()
        thread.join(TIMEOUT)
    assert found == [Found.GONE, *[Found.OURS] * 199]


def test_ten_thousand_claims_are_withdrawn_within_a_second(redis_server: RedisServer) -> None:
    attempts = hold_many(redis_server.url, 10_000)
    with Watchdog(redis_server.url) as watchdog:
        began = time.thread_time()  # what other processes do meanwhile does not count
        answers = [
            answer
            for start in range(0, len(attempts), 500)
            for answer in run(watchdog.keeper.withdraw(attempts[start : start + 500], TIMEOUT))
        ]
        took = time.thread_time() - began
    assert answers == [Found.OURS] * 10_000
    assert took < 1.0, took


def test_frozen_server_costs_one_timeout_for_the_whole_batch(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    with Watchdog(server.url) as watchdog:
        attempts = [watchdog.hold(f"job-{number}") for number in range(3)]
        attempts += [make_attempt(f"other-{number}") for number in range(2000)]
        server.pause()
        began = time.monotonic()
        found = run(watchdog.keeper.withdraw(attempts, 0.5))
        assert time.monotonic() - began < 0.5 + LATE
        server.resume()
        assert [type(each) for each in found] == [RequestFailed] * 2003
        assert run(watchdog.keeper.withdraw(attempts[:3], TIMEOUT)) is not None
        assert server.client().exists("job-0", "job-1", "job-2") == 0


def test_batch_to_a_server_without_the_script_sends_it_once(redis_server: RedisServer) -> None:
    with Watchdog(redis_server.url) as watchdog:
        attempts = [watchdog.hold(f"job-{number}") for number in range(5)]
        client: Any = redis_server.client()
        client.script_flush()
        client.config_resetstat()
        assert run(watchdog.keeper.withdraw(attempts, TIMEOUT)) == [Found.OURS] * 5
        assert client.info("commandstats")["cmdstat_eval"]["calls"] == 1, "the source of the script is sent once"


@sync_and_async
async def test_refused_withdrawal_is_not_retried(session: RedisSession, server: RedisServer) -> None:
    attempts = [make_attempt("a"), make_attempt("b")]
    await session.acquire(attempts[0], TIMEOUT)
    command(server, "ACL", "SETUSER", "default", "-del", "-hdel")
    try:
        found = await keeper_of(session).withdraw(attempts, TIMEOUT)
    finally:
        command(server, "ACL", "SETUSER", "default", "+del", "+hdel")
    assert [type(found[0]), found[1]] == [EngineRefused, Found.GONE], "failures are isolated"


# ---- watching from early on


def test_watch_costs_one_command_per_hold_and_extends_nothing(redis_server: RedisServer) -> None:
    with Watchdog(redis_server.url) as watchdog:
        first = watchdog.hold("first")
        assert watchdog.watch(first) == [Found.OURS]  # connects
        attempts = [watchdog.hold(f"job-{number}", ttl=60.0) for number in range(3)]
        redis_server.client().pexpire("job-0", 30_000)
        redis_server.client().config_resetstat()
        assert watchdog.watch(*attempts) == [Found.OURS] * 3
        assert calls(redis_server) == {"hexists": 3}
        redis_server.client().config_resetstat()
        assert watchdog.watch(first) == [Found.OURS]
        assert calls(redis_server) == {"hexists": 1}
        assert redis_server.client().pttl("job-0") <= 30_000


@pytest.mark.parametrize("loss", ["delete", "break", "flush", "replace", "forceUnlock"])
def test_loss_is_pushed_after_a_watch(loss: str, redis_server: RedisServer) -> None:
    with Watchdog(redis_server.url) as watchdog, Other(redis_server.url) as other:
        attempts = [watchdog.hold(name) for name in ("a", "b")]
        assert watchdog.watch(*attempts) == [Found.OURS] * 2
        assert watchdog.hints(0.05) == set()
        client: Any = redis_server.client()
        match loss:
            case "delete":
                client.delete("a")
            case "break":
                assert run(other.session.break_("a", TIMEOUT))
            case "flush":
                client.flushall()
            case "replace":
                client.set("a", "another library's")
            case "forceUnlock":  # the script of Redisson
                client.eval("if redis.call('del', KEYS[1]) == 1 then redis.call('publish', KEYS[2], ARGV[1]) end", 2,
                            "a", "redisson_lock__channel:{a}", "0")  # fmt: skip
        assert watchdog.hints() == (ALL_NAMES if loss == "flush" else {"a"})


def test_watch_distinguishes_gone_from_stolen(redis_server: RedisServer) -> None:
    with Watchdog(redis_server.url) as watchdog, Other(redis_server.url) as other:
        attempts = [watchdog.hold(name) for name in ("ours", "gone", "stolen", "replaced")]
        redis_server.client().delete("gone", "stolen")
        other.hold("stolen")
        redis_server.client().set("replaced", "another library's")
        assert watchdog.watch(*attempts) == [Found.OURS, Found.GONE, Found.STOLEN, Found.STOLEN]


def test_scripts_of_the_watchdog_are_not_tracked(redis_server: RedisServer) -> None:
    """Otherwise each read inside them would track all their keys and stay in the server's table permanently."""
    with Watchdog(redis_server.url) as watchdog:
        attempts = [watchdog.hold(f"job-{number}") for number in range(10)]
        run(watchdog.keeper.renew(attempts, 60.0, TIMEOUT))
        assert redis_server.client().info("stats")["tracking_total_keys"] == 10
        run(watchdog.keeper.withdraw(attempts, TIMEOUT))
        assert redis_server.client().info("stats")["tracking_total_keys"] == 0
        assert watchdog.hints(0.05) == set(), "its own actions cause no hint"


@pytest.mark.parametrize("right", ["client|tracking", "client|caching"])
def test_watch_works_for_a_user_without_the_right_to_track(right: str, redis_server: RedisServer) -> None:
    command(redis_server, "ACL", "SETUSER", "locker", "reset", "on", ">pw", "~*", "&*", "+@all", f"-{right}")
    with Watchdog(redis_server.url.replace("redis://", "redis://locker:pw@")) as watchdog:
        attempt = watchdog.hold("job")
        assert watchdog.watch(attempt) == [Found.OURS]
        assert run(watchdog.keeper.renew([attempt], 60.0, TIMEOUT)) == [Found.OURS]
        assert redis_server.client().info("stats")["tracking_total_keys"] == 0
        redis_server.client().delete("job")
        assert watchdog.watch(attempt) == [Found.GONE]


# ---- no new connections


def test_lease_survives_a_server_that_refuses_new_connections(start_redis: Callable[..., RedisServer]) -> None:
    """The watchdog cannot connect: it renews over the connection of the callers."""
    server = start_redis("maxclients 20")
    with holdfast.connect(server.url, ttl=1.5) as locks:
        lease = locks.lock("job").acquire()
        with full(server):
            for _ in range(2):
                eventually(renewed(lease))
        lease.release()


async def test_async_lease_survives_a_server_that_refuses_new_connections(
    start_redis: Callable[..., RedisServer],
) -> None:
    server = start_redis("maxclients 20")
    async with holdfast.aio.connect(server.url, ttl=1.5) as locks:
        lease = await locks.lock("job").acquire()
        with full(server):
            for _ in range(2):
                await until(renewed(lease))
        await lease.release()


def test_lease_survives_a_changed_password(start_redis: Callable[..., RedisServer]) -> None:
    """Open connections stay authenticated. The connection of the watchdog is opened later and is refused."""
    server = start_redis()
    with holdfast.connect(f"{server.url}?username=locker&password=old", ttl=1.5) as locks:
        command(server, "ACL", "SETUSER", "locker", "on", ">old", "~*", "&*", "+@all")
        lease = locks.lock("job").acquire()
        command(server, "ACL", "SETUSER", "locker", "resetpass", ">new")
        for _ in range(2):
            eventually(renewed(lease))
        lease.release()


def test_only_an_open_connection_is_borrowed(start_redis: Callable[..., RedisServer]) -> None:
    """The keeper does not wait twice for an unreachable server."""
    server = start_redis()
    engine = connect(server.url, {})
    front, keeper = engine.session(BLOCKING), engine.keeper(BLOCKING)
    wakeup = BLOCKING.wakeup()
    run(keeper.wait_for_hints(clock.now(), wakeup))
    attempt = make_attempt("job")
    run(front.acquire(attempt, TIMEOUT))
    server.pause()
    began = time.monotonic()
    (failure,) = run(keeper.renew([attempt], 30.0, 0.5))
    assert isinstance(failure, RequestFailed)
    assert time.monotonic() - began < 0.5 + LATE / 2
    server.resume()
    assert run(keeper.renew([attempt], 30.0, TIMEOUT)) == [Found.OURS]
    run(front.close())
    run(keeper.close())
    wakeup.close()
