"""Renewals in batches, and the tracking connection of the watchdog."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from holdfast._runtime import clock
from holdfast._runtime.blocking import BLOCKING, BlockingWakeup, run
from holdfast.engines.base import ALL_NAMES, Found, RequestFailed, Suspects
from holdfast.engines.redis.connections import in_flight
from holdfast.engines.redis.connections.blocking import BlockingChannel
from holdfast.engines.redis.session import RedisSession
from tests.redis.sentinel_support import StartRedis
from tests.redis.support import (
    LATE,
    TIMEOUT,
    Other,
    command,
    connections,
    counting,
    keeper_of,
    make_attempt,
    sync_and_async,
)
from tests.servers.redis import RedisServer
from tests.support.calls import Later
from tests.support.waiting import eventually


@sync_and_async
async def test_thousand_leases_are_renewed_in_batches(session: RedisSession, server: RedisServer) -> None:
    attempts = [make_attempt(f"job-{number}", ttl=30.0) for number in range(1000)]
    with Other(server.url) as other:
        for attempt in attempts:
            run(other.session.acquire(attempt, TIMEOUT))
    client = server.client()
    client.delete("job-0", "job-999")
    client.hset("job-500", "thief:1", 1)
    client.hdel("job-500", attempts[500].owner)
    client.delete("job-501")
    client.set("job-501", "another library's")
    await keeper_of(session).renew(attempts[1:2], 30.0, TIMEOUT)  # loads the script
    client.config_resetstat()
    found = await keeper_of(session).renew(attempts, 60.0, TIMEOUT)
    scripts = client.info("commandstats")
    assert scripts["cmdstat_evalsha"]["calls"] == 5
    assert "cmdstat_eval" not in scripts
    expected = dict.fromkeys(range(1000), Found.OURS) | {0: Found.GONE, 999: Found.GONE}
    expected |= {500: Found.STOLEN, 501: Found.STOLEN}
    assert dict(enumerate(found)) == expected
    assert client.exists("job-0", "job-999") == 0
    assert client.pttl("job-500") <= 30_000  # not ours, so unchanged
    assert 50_000 < client.pttl("job-1") <= 60_000
    assert 50_000 < client.pttl("holdfast_owner:{job-1}") <= 60_000


def test_thousands_of_leases_are_renewed_in_few_round_trips(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: at a round trip of 0.1 s, 50,000 leases took 25 s, longer than a ttl of 30 s leaves for it."""
    sent: list[int] = []
    with Other(redis_server.url) as other:
        attempts = [other.hold(f"job-{number}") for number in range(2_500)]
        run(other.keeper.renew(attempts[:1], 30.0, TIMEOUT))  # loads the script
        monkeypatch.setattr(in_flight, "_send", counting(sent))
        assert set(run(other.keeper.renew(attempts, 60.0, TIMEOUT))) == {Found.OURS}
    assert sent == [8, 5]  # scripts for 200 leases each


def test_unknown_script_is_loaded_once_for_all_calls_of_a_buffer(redis_server: RedisServer) -> None:
    client = redis_server.client()
    with Other(redis_server.url) as other:
        attempts = [other.hold(f"job-{number}") for number in range(1_000)]
        client.script_flush()
        client.config_resetstat()
        assert set(run(other.keeper.renew(attempts, 60.0, TIMEOUT))) == {Found.OURS}
    assert client.info("commandstats")["cmdstat_eval"]["calls"] == 1


@sync_and_async
async def test_renewal_never_shortens(session: RedisSession, server: RedisServer) -> None:
    attempt = make_attempt("job", ttl=60.0)
    await session.acquire(attempt, TIMEOUT)
    assert await session.renew(attempt, 1.0, TIMEOUT) == Found.OURS
    assert server.client().pttl("job") > 50_000
    assert server.client().pttl("holdfast_owner:{job}") > 50_000


@sync_and_async
async def test_renewal_keeps_the_fencing_counter_alive(session: RedisSession, server: RedisServer) -> None:
    client, attempt, javas = server.client(), make_attempt("job"), make_attempt("javas")
    client.set("redisson_lock_token:{javas}", 1)
    for each in (attempt, javas):
        await session.acquire(each, TIMEOUT)
    client.expire("redisson_lock_token:{job}", 100)
    await keeper_of(session).renew([attempt, javas], 30.0, TIMEOUT)
    assert client.ttl("redisson_lock_token:{job}") > 29 * 86400
    assert client.ttl("redisson_lock_token:{javas}") == -1


@sync_and_async
async def test_renewals_refresh_the_fencing_counter_once_in_a_while(session: RedisSession, server: RedisServer) -> None:
    """Each write would go to the replicas, and wake those that observe an election."""
    client, attempt, counter = server.client(), make_attempt("job"), "redisson_lock_token:{job}"
    await session.acquire(attempt, TIMEOUT)
    full = client.pttl(counter)
    for part, refreshed in ((0.98, False), (0.96, True)):
        client.pexpire(counter, int(full * part))
        await keeper_of(session).renew([attempt], 30.0, TIMEOUT)
        assert (client.pttl(counter) > full * (part + 0.01)) is refreshed


@sync_and_async
async def test_renewal_without_claims_sends_no_request(session: RedisSession, server: RedisServer) -> None:
    assert await keeper_of(session).renew([], 30.0, TIMEOUT) == []


@sync_and_async
async def test_refused_renewal_is_a_failure_for_each_claim(session: RedisSession, server: RedisServer) -> None:
    """An ACL can be corrected before the lease expires: the watchdog retries."""
    attempts = [make_attempt(f"job-{number}") for number in range(3)]
    for attempt in attempts:
        await session.acquire(attempt, TIMEOUT)
    command(server, "ACL", "SETUSER", "default", "-evalsha")
    try:
        found = await keeper_of(session).renew(attempts, 30.0, TIMEOUT)
    finally:
        command(server, "ACL", "SETUSER", "default", "+evalsha")
    assert [type(each) for each in found] == [RequestFailed] * 3
    assert await keeper_of(session).renew(attempts, 30.0, TIMEOUT) == [Found.OURS] * 3


def test_unreachable_server_fails_all_renewals_in_one_timeout(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    with Other(server.url) as other:
        attempts = [make_attempt(f"job-{number}") for number in range(1000)]
        server.pause()
        began = time.monotonic()
        found = run(other.keeper.renew(attempts, 30.0, 1.0))
        assert time.monotonic() - began < 1.0 + LATE, "together, not one after the other"
        server.resume()
    assert len(found) == 1000
    assert all(isinstance(each, RequestFailed) for each in found)


# ---- hints


class Watchdog:
    def __init__(self, url: str, **options: Any) -> None:
        self.other = Other(url, **options)
        self.keeper = self.other.engine.keeper(BLOCKING)
        self.wakeup: BlockingWakeup = BLOCKING.wakeup()
        self.hints(0.0)  # the watchdog does this first: without it no loss is reported

    def hints(self, seconds: float = 5.0) -> Suspects:
        return run(self.keeper.wait_for_hints(clock.now() + seconds, self.wakeup))

    def close(self) -> None:
        run(self.keeper.close())
        run(self.other.session.close())
        self.wakeup.close()


@pytest.fixture
def watchdog(redis_server: RedisServer) -> Iterator[Watchdog]:
    watchdog = Watchdog(redis_server.url)
    yield watchdog
    watchdog.close()


def test_deleted_lock_is_reported_immediately(watchdog: Watchdog, redis_server: RedisServer) -> None:
    attempts = [watchdog.other.hold(name) for name in ("a", "b", "c")]
    assert run(watchdog.keeper.renew(attempts, 60.0, TIMEOUT)) == [Found.OURS] * 3
    redis_server.client().delete("b")
    began = time.monotonic()
    assert watchdog.hints() == {"b"}
    assert time.monotonic() - began < 1.0 + LATE
    assert run(watchdog.keeper.renew(attempts, 90.0, TIMEOUT)) == [Found.OURS, Found.GONE, Found.OURS]
    # Reported once per renewal: a renewed key is tracked again.
    redis_server.client().delete("a")
    assert watchdog.hints() == {"a"}


def test_a_session_has_no_tracking_connection_and_keeps_nothing(redis_server: RedisServer) -> None:
    """A caller renews manually and never reads pushes: they would accumulate, one per name."""
    client = redis_server.client()
    with Other(f"{redis_server.url}?client_name=front") as other:
        for number in range(20):
            attempt = other.hold(f"job-{number}")
            assert run(other.session.renew(attempt, 60.0, TIMEOUT)) == Found.OURS
            other.release(attempt)
        assert connections(redis_server, "front")() == 1
        assert client.info("stats")["tracking_total_keys"] == 0
        channel = other.session._channel
        assert type(channel) is BlockingChannel, "which has no tracking connection"


def test_renewal_reads_the_key_last(redis_server: RedisServer) -> None:
    """A key that is read and then written is no longer tracked; only the lock is read here."""
    watchdog = Watchdog(redis_server.url, token_ttl=None)
    attempt = watchdog.other.hold("a", ttl=10.0)
    run(watchdog.keeper.renew([attempt], 60.0, TIMEOUT))
    redis_server.client().delete("a")
    assert watchdog.hints() == {"a"}
    watchdog.close()


def test_broken_lock_is_reported_immediately(watchdog: Watchdog, redis_server: RedisServer) -> None:
    attempt = watchdog.other.hold("a")
    run(watchdog.keeper.renew([attempt], 30.0, TIMEOUT))
    with Other(redis_server.url) as operator:
        assert run(operator.session.break_("a", TIMEOUT))
    assert watchdog.hints() == {"a"}


def test_own_renewals_cause_no_hint(watchdog: Watchdog) -> None:
    attempt = watchdog.other.hold("a")
    for _ in range(3):
        run(watchdog.keeper.renew([attempt], 60.0, TIMEOUT))
    assert watchdog.hints(0.2) == set()


def test_flushall_and_lost_connection_make_all_leases_suspect(watchdog: Watchdog, redis_server: RedisServer) -> None:
    client = redis_server.client()
    attempt = watchdog.other.hold("a")
    run(watchdog.keeper.renew([attempt], 30.0, TIMEOUT))
    client.flushall()
    assert watchdog.hints() == ALL_NAMES
    run(watchdog.keeper.renew([attempt], 30.0, TIMEOUT))
    client.client_kill_filter(skipme=True)
    assert watchdog.hints() == ALL_NAMES
    # Reported once; without a connection only the wake-up event counts.
    assert watchdog.hints(0.1) == set()


def test_all_leases_are_suspect_once_after_a_failed_renewal(start_redis: Callable[..., RedisServer]) -> None:
    """The new connection does not track the keys of the old one; but an unreachable server must not cause a busy
    loop."""
    server = start_redis()
    watchdog = Watchdog(server.url)
    attempt = watchdog.other.hold("a")
    run(watchdog.keeper.renew([attempt], 30.0, TIMEOUT))
    server.pause()
    (failure,) = run(watchdog.keeper.renew([attempt], 30.0, 0.2))
    assert isinstance(failure, RequestFailed)
    assert watchdog.hints(0.05) == set()
    server.resume()
    assert run(watchdog.keeper.renew([attempt], 30.0, TIMEOUT)) == [Found.OURS]
    assert watchdog.hints() == ALL_NAMES
    assert watchdog.hints(0.05) == set()
    watchdog.close()


def test_the_wake_up_ends_the_wait_for_hints(watchdog: Watchdog) -> None:
    attempt = watchdog.other.hold("a")
    for connected in (False, True):
        if connected:
            run(watchdog.keeper.renew([attempt], 30.0, TIMEOUT))
        later = Later(lambda: True, watchdog.wakeup.set)
        began = time.monotonic()
        assert watchdog.hints() == set()
        later.join()
        assert time.monotonic() - began < 1.0 + LATE
        watchdog.wakeup.clear()


def test_renewals_work_without_tracking(redis_server: RedisServer) -> None:
    admin = redis_server.client()
    command(redis_server, "ACL", "SETUSER", "untracked", "on", ">pw", "~*", "&*", "+@all", "-client|tracking")
    watchdog = Watchdog(redis_server.url_as("untracked", "pw"))
    attempt = watchdog.other.hold("a")
    assert run(watchdog.keeper.renew([attempt], 30.0, TIMEOUT)) == [Found.OURS]
    admin.delete("a")
    assert watchdog.hints(0.1) == set()
    assert run(watchdog.keeper.renew([attempt], 30.0, TIMEOUT)) == [Found.GONE]
    watchdog.close()
    admin.acl_deluser("untracked")


def test_concurrent_renewals_of_several_threads_are_independent(watchdog: Watchdog) -> None:
    attempts = [watchdog.other.hold(f"job-{number}") for number in range(8)]
    results: list[list[object]] = []

    def renew(attempt: object) -> None:
        results.append([run(watchdog.keeper.renew([attempt], 30.0, TIMEOUT)) for _ in range(50)])  # type: ignore[list-item]

    threads = [threading.Thread(target=renew, args=(attempt,)) for attempt in attempts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert results == [[[Found.OURS]] * 50] * 8


def is_busy(server: RedisServer) -> bool:
    try:
        server.ask("PING")
    except redis.ResponseError:
        return True
    return False


def test_tracking_refused_by_a_busy_server_is_requested_again(start_redis: StartRedis) -> None:
    """BUSY is not a refusal. Otherwise losses would not be pushed for the lifetime of the connection."""
    server = start_redis("busy-reply-threshold 1")
    watchdog = Watchdog(server.url)
    keeper, attempt = watchdog.keeper, watchdog.other.hold("job")

    def keep_busy() -> None:
        with pytest.raises(redis.ResponseError):  # killed
            server.client().eval("while 1 do end", 0)

    endless = threading.Thread(target=keep_busy)
    endless.start()
    eventually(lambda: is_busy(server))
    (failure,) = run(keeper.renew([attempt], 30.0, TIMEOUT))
    assert "BUSY" in str(failure)
    server.ask("SCRIPT", "KILL")
    endless.join(TIMEOUT)
    assert run(keeper.renew([attempt], 30.0, TIMEOUT)) == [Found.OURS]
    assert server.ask("INFO", "clients")["tracking_clients"] == 1
    watchdog.close()
