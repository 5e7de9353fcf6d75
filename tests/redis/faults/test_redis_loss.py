"""Lost locks are reported to the holder, and waiters continue: faults R13, R14, P1, P3, P4, D1, D9, D10."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.fencing import FileFence
from tests.servers.redis import RedisServer
from tests.support.child import Child
from tests.support.waiting import LASTING, eventually, renewed

#: Tolerated delay on a machine with scheduler stalls.
LATE = 1.5


@pytest.fixture
def locks(redis_url: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(redis_url, ttl=LASTING) as client:
        yield client


def waiter_for(url: str, name: str) -> tuple[threading.Thread, list[holdfast.Lease]]:
    """Starts another client that waits for the lock and releases it once granted."""
    got: list[holdfast.Lease] = []

    def wait() -> None:
        with holdfast.connect(url, ttl=LASTING) as client, client.lock(name).acquire(timeout=10) as lease:
            got.append(lease)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, got


def test_R13_frozen_holder_sees_the_loss_on_its_first_check_and_its_late_write_is_refused(
    redis_url: str, locks: holdfast.Client, tmp_path: Path
) -> None:
    fence = FileFence(tmp_path / "fence")
    with Child(redis_url, ttl=LASTING) as victim:
        victim.do(f"keep.update(fence=holdfast.fencing.FileFence({str(tmp_path / 'fence')!r}))")
        victim.do("keep.update(lease=locks.lock('r13').acquire())")
        assert victim.do("keep['lease'].held")
        victim.freeze()
        start = time.monotonic()
        lease = locks.lock("r13").acquire(timeout=10)
        assert time.monotonic() - start < LASTING + LATE
        with fence.guard("file", lease):
            pass
        victim.send("[keep['lease'].held, keep['lease'].lost_reason, error_of(keep['lease'].check)]")
        victim.wake()
        held, reason, check = victim.answer()
        assert not held
        assert reason in ("expired", "stolen")
        assert check == f"LockLost:{reason}"
        assert victim.do("error_of(lambda: keep['fence'].guard('file', keep['lease']).__enter__())") == "StaleToken:"
        assert victim.do("error_of(keep['lease'].release)").startswith("LockLost")
        assert lease.held
        assert lease.token > victim.do("keep['lease'].token")
        lease.release()


def lose_by_del(server: RedisServer) -> None:
    server.client().delete("doomed")


def lose_by_flushall(server: RedisServer) -> None:
    server.client().flushall()


@pytest.mark.parametrize("lose", [lose_by_del, lose_by_flushall])
def test_deleted_lock_is_reported_as_lost_and_waiters_get_larger_tokens(
    redis_server: RedisServer, locks: holdfast.Client, lose: Callable[[RedisServer], None]
) -> None:
    reported = threading.Event()
    lease = locks.lock("doomed", on_lost=lambda _: reported.set()).acquire()
    thread, got = waiter_for(redis_server.url, "doomed")
    eventually(lambda: locks.inspect("doomed").waiters == 1)
    lose(redis_server)
    assert reported.wait(5)
    assert lease.lost_reason in ("broken", "stolen"), "by a renewal or the push, not at the end of the lease"
    with pytest.raises(holdfast.LockLost):
        lease.release()
    thread.join(10)
    assert got[0].token > lease.token


def test_push_notifies_the_holder_long_before_the_next_renewal(redis_server: RedisServer) -> None:
    ttl = 6.0
    with holdfast.connect(redis_server.url, ttl=ttl) as locks:
        lease = locks.lock("watched").acquire()
        eventually(renewed(lease))  # the first renewal has enabled the push
        start = time.monotonic()
        redis_server.client().delete("watched")
        assert lease.lost.wait(5)
        assert time.monotonic() - start < ttl / 3 * 0.8
        assert lease.lost_reason == "broken"


def test_stolen_lock_is_reported_as_stolen(redis_server: RedisServer, locks: holdfast.Client) -> None:
    lease = locks.lock("stolen").acquire()
    thief = redis_server.client()
    pipeline = thief.pipeline()
    pipeline.delete("stolen")
    pipeline.hset("stolen", "thief:1", 1)
    pipeline.pexpire("stolen", 5000)
    pipeline.execute()
    assert lease.lost.wait(5)
    assert lease.lost_reason == "stolen"
    assert thief.hgetall("stolen") == {b"thief:1": b"1"}, "the lock of another owner is never touched"


def test_script_flush_is_transparent(redis_server: RedisServer, locks: holdfast.Client) -> None:
    lease = locks.lock("scripts").acquire()
    redis_server.client().script_flush()
    eventually(renewed(lease))  # with a reloaded script
    redis_server.client().script_flush()
    lease.release()
    with locks.lock("scripts").acquire() as again:
        assert again.token > lease.token


def test_loss_by_an_empty_restart_is_reported_and_nothing_is_recreated(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    with holdfast.connect(server.url, ttl=LASTING) as locks:
        lease = locks.lock("restart").acquire()
        server.kill()
        server.restart()
        assert lease.lost.wait(LASTING + LATE)
        assert lease.lost_reason in ("broken", "unreachable")
        assert not server.client().exists("restart"), "a renewal never recreates a lock"
        with locks.lock("restart").acquire(timeout=5) as again:
            assert again.token > lease.token


def test_waiters_continue_after_a_restart(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    got: list[int] = []

    async def wait_async() -> None:
        others = holdfast.aio.connect(server.url, unavailable_after=15)
        async with others, others.lock("restart", timeout=20) as lease:
            got.append(lease.token)

    def wait() -> None:
        with holdfast.connect(server.url, unavailable_after=15) as others, others.lock("restart", timeout=20) as lease:
            got.append(lease.token)

    with holdfast.connect(server.url, ttl=9) as locks:
        lease = locks.lock("restart").acquire()
        threads = [threading.Thread(target=wait), threading.Thread(target=lambda: asyncio.run(wait_async()))]
        for thread in threads:
            thread.start()
        eventually(lambda: locks.inspect("restart").waiters == 2)
        server.kill()
        server.restart()
        start = time.monotonic()
        for thread in threads:
            thread.join(15)
        assert time.monotonic() - start < 5.0, "long before the old lease would have expired"
        assert len(got) == 2
        assert min(got) > lease.token
        assert lease.lost.wait(15)
        with pytest.raises(holdfast.LockLost):
            lease.release()


def test_client_kill_of_every_connection_keeps_the_lock(redis_server: RedisServer, locks: holdfast.Client) -> None:
    lease = locks.lock("killed").acquire()
    thread, got = waiter_for(redis_server.url, "killed")
    eventually(renewed(lease))  # the watchdog has a connection too
    eventually(lambda: locks.inspect("killed").waiters == 1)
    admin = redis_server.client()
    for _ in range(5):
        admin.client_kill_filter(_type="normal", skipme=True)
        eventually(lambda: admin.pttl("killed") > 0)
    eventually(renewed(lease))
    lease.release()
    thread.join(10)
    assert got[0].token > lease.token


def test_unreachable_server_is_reported_as_a_loss_by_the_deadline(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    with holdfast.connect(server.url, ttl=LASTING, request_timeout=30.0) as locks:
        lease = locks.lock("gone").acquire()
        taken = time.monotonic()
        server.pause()
        assert lease.lost.wait(15)
        assert time.monotonic() - taken < LASTING + LATE, "independent of the request timeout"
        assert lease.lost_reason == "unreachable"
        with pytest.raises(holdfast.LockLost):
            lease.release()
        server.resume()


def test_release_unreachable_until_the_deadline_is_outcome_unknown(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    with holdfast.connect(server.url, ttl=LASTING, request_timeout=0.2) as locks:
        lease = locks.lock("unknown").acquire()
        server.pause()
        with pytest.raises(holdfast.OutcomeUnknown) as caught:
            lease.release()
        assert caught.value.operation == "release"
        lease.release()  # idempotent
        server.resume()
        with locks.lock("unknown").acquire(timeout=5):
            pass


def test_lock_of_a_killed_holder_is_granted_within_its_ttl(redis_url: str, locks: holdfast.Client) -> None:
    ttl = 0.6
    with Child(redis_url, ttl=ttl) as victim:
        victim.do("keep.update(lease=locks.lock('dead').acquire())")
        victim.kill()
        start = time.monotonic()
        locks.lock("dead").acquire(timeout=10).release()
        assert time.monotonic() - start < ttl + LATE


def test_dead_waiter_delays_the_queue_by_a_bounded_time(redis_url: str, locks: holdfast.Client) -> None:
    lease = locks.lock("line").acquire()
    with Child(redis_url, ttl=LASTING) as victim:
        victim.send("locks.lock('line').acquire(timeout=20)")
        eventually(lambda: locks.inspect("line").waiters == 1)
        thread, got = waiter_for(redis_url, "line")
        eventually(lambda: locks.inspect("line").waiters == 2)
        victim.kill()
        lease.release()
        start = time.monotonic()
        thread.join(15)
        assert got, "the second waiter continued"
        assert time.monotonic() - start < 3.0
