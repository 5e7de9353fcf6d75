"""Errors are clear and in time: wrong password, no server, a key of another type, a closed client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

import holdfast
from tests.servers.ports import free_port
from tests.servers.redis import RedisServer
from tests.support.waiting import eventually

#: Tolerated delay on a machine with scheduler stalls.
LATE = 1.5


def test_wrong_password_is_refused_immediately_and_not_shown(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis(password="right")
    with holdfast.connect(f"redis://:wr0ng-s3cr3t@127.0.0.1:{server.port}", unavailable_after=30) as locks:
        start = time.monotonic()
        with pytest.raises(holdfast.EngineRefused) as caught:
            locks.lock("a").acquire()
        assert time.monotonic() - start < 5.0, "not retried"
        assert "wr0ng" not in str(caught.value) + repr(caught.value) + str(caught.value.__cause__) + repr(locks)


async def test_async_wrong_password_is_refused_and_not_shown(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis(password="right")
    async with holdfast.aio.connect(f"redis://:wr0ng-s3cr3t@127.0.0.1:{server.port}") as locks:
        with pytest.raises(holdfast.EngineRefused) as caught:
            await locks.ping()
        assert "wr0ng" not in str(caught.value) + repr(caught.value) + str(caught.value.__cause__) + repr(locks)


def test_missing_server_is_unavailable_in_time() -> None:
    with holdfast.connect(f"redis://127.0.0.1:{free_port()}", unavailable_after=0.5) as locks:
        for act in (locks.lock("a").acquire, locks.ping, lambda: locks.inspect("a")):
            start = time.monotonic()
            with pytest.raises(holdfast.EngineUnavailable) as caught:
                act()
            assert 0.4 < time.monotonic() - start < 0.5 + LATE
            assert not isinstance(caught.value, holdfast.OutcomeUnknown), "no byte was sent"


@pytest.mark.parametrize("timeout, within", [(0, 2 + LATE), (0.2, 0.2 + LATE)])
def test_missing_server_is_unavailable_not_busy_within_the_timeout_of_the_call(timeout: float, within: float) -> None:
    with holdfast.connect(f"redis://127.0.0.1:{free_port()}", unavailable_after=30) as locks:
        start = time.monotonic()
        with pytest.raises(holdfast.EngineUnavailable):
            locks.lock("a").try_acquire(timeout=timeout)
        assert time.monotonic() - start < within


async def test_async_missing_server_is_unavailable() -> None:
    async with holdfast.aio.connect(f"redis://127.0.0.1:{free_port()}", unavailable_after=0.3) as locks:
        with pytest.raises(holdfast.EngineUnavailable):
            await locks.lock("a").acquire()


def test_waiters_behind_a_caller_that_cannot_reach_the_engine_share_its_error() -> None:
    outcomes: list[type[BaseException]] = []

    def acquire() -> None:
        try:
            locks.lock("a").acquire()
        except holdfast.LockError as error:
            outcomes.append(type(error))

    with holdfast.connect(f"redis://127.0.0.1:{free_port()}", unavailable_after=1) as locks:
        threads = [threading.Thread(target=acquire) for _ in range(10)]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert time.monotonic() - start < 1 + 2 * LATE, "together, not one after the other"
        assert outcomes == [holdfast.EngineUnavailable] * 10


def test_waiter_with_a_long_timeout_does_not_share_the_error_of_a_short_one(
    start_redis: Callable[..., RedisServer],
) -> None:
    """Found by simulation: the preceding caller gave up after its own short timeout, and all callers behind it too."""
    server = start_redis()
    with holdfast.connect(server.url, request_timeout=0.2, unavailable_after=20) as locks:
        locks.ping()
        server.pause()
        got: list[object] = []

        def acquire_with_a_long_timeout() -> None:
            with locks.lock("a").acquire() as lease:
                got.append(lease.token)

        def acquire_with_a_short_timeout() -> None:
            with pytest.raises(holdfast.EngineUnavailable):
                locks.lock("a").acquire(timeout=1.0)
            gave_up.set()

        core, gave_up = locks._opened, threading.Event()
        assert core is not None
        threads = [
            threading.Thread(target=acquire_with_a_short_timeout),
            threading.Thread(target=acquire_with_a_long_timeout),
        ]
        threads[0].start()
        eventually(lambda: "a" in core.queue.occupants)
        threads[1].start()
        eventually(lambda: core.queue.waiting("a") == 1 or gave_up.is_set())
        assert gave_up.wait(10)
        server.resume()
        for thread in threads:
            thread.join(10)
        assert got


def test_frozen_server_raises_outcome_unknown_which_is_also_unavailable(
    start_redis: Callable[..., RedisServer],
) -> None:
    server = start_redis()
    with holdfast.connect(server.url, request_timeout=0.2, unavailable_after=0.6) as locks:
        locks.ping()
        server.pause()
        start = time.monotonic()
        with pytest.raises(holdfast.EngineUnavailable) as caught:
            locks.lock("a").acquire()
        assert time.monotonic() - start < 0.6 + LATE
        assert isinstance(caught.value, holdfast.OutcomeUnknown)
        server.resume()


def test_key_of_another_type_is_explained(redis_server: RedisServer) -> None:
    redis_server.client().set("taken", "another token", px=60_000)
    with holdfast.connect(redis_server.url) as locks:
        message = "holds a string, probably another lock library's; use namespace="
        with pytest.raises(holdfast.EngineRefused, match=message):
            locks.lock("taken").acquire()
        assert redis_server.client().get("taken") == b"another token"
    with holdfast.connect(redis_server.url, namespace="ours") as locks, locks.lock("taken") as lease:
        assert lease.name == "taken"


@pytest.mark.parametrize("operation", ["release", "renew"])
def test_lock_replaced_by_another_library_is_lost(operation: str, redis_server: RedisServer) -> None:
    with holdfast.connect(redis_server.url) as locks:
        lease = locks.lock("taken").acquire()
        redis_server.client().set("taken", "redis-py's token", px=60_000)
        with pytest.raises(holdfast.LockLost):
            getattr(lease, operation)()
        assert lease.lost_reason == "stolen"
        assert redis_server.client().get("taken") == b"redis-py's token"


def test_hash_that_is_not_a_lock_is_not_broken(redis_server: RedisServer) -> None:
    redis_server.client().hset("user:42", "name", "Ann")
    with holdfast.connect(redis_server.url) as locks:
        with pytest.raises(holdfast.EngineRefused, match="'user:42' is not a lock"):
            locks.break_("user:42")
        assert redis_server.client().hgetall("user:42") == {b"name": b"Ann"}


def test_closed_client_raises_a_clear_error(redis_url: str) -> None:
    locks = holdfast.connect(redis_url)
    lock = locks.lock("a")
    lease = lock.acquire()
    locks.close()
    locks.close()
    assert lease.lost_reason == "closed"
    for act in (lock.acquire, locks.ping, lambda: locks.inspect("a"), lambda: list(locks.locks())):
        with pytest.raises(holdfast.UsageError, match="closed"):
            act()
    with holdfast.connect(redis_url) as others:
        assert others.inspect("a").holders == (), "close() has released it"
