"""A client that is never closed, as in ``with holdfast.connect(url).lock("x"):``, leaves nothing and no warning."""

from __future__ import annotations

import gc
import threading

import pytest

import holdfast
from holdfast.engines.base import Found
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.session import RedisSession
from tests.support.leaks import Baseline
from tests.support.waiting import LASTING, eventually, renewed


@pytest.mark.needs_redis
def test_a_client_made_for_one_lock_ends_with_it(url: str) -> None:
    before = Baseline()
    with holdfast.connect(url).lock("one-liner") as lease:
        assert lease.held
    del lease
    before.wait_until_nothing_is_left(5)


@pytest.mark.needs_redis
def test_a_lease_outlives_the_client_object(url: str) -> None:
    before = Baseline()
    lease = holdfast.connect(url, ttl=LASTING).lock("kept").acquire()
    gc.collect()
    eventually(renewed(lease))  # although the client object is garbage
    lease.release()
    del lease
    before.wait_until_nothing_is_left(5)


@pytest.mark.needs_redis
async def test_an_async_client_made_for_one_lock_ends_with_it(url: str) -> None:
    before = Baseline()
    async with holdfast.aio.connect(url).lock("one-liner") as lease:
        assert lease.held
    del lease
    await before.until_nothing_is_left(5)


def test_a_release_under_way_keeps_the_session(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is garbage while its last lease is being released, and nothing else is held: the watchdog ended, and
    closed the session under the release."""
    release = RedisSession.release
    ended = threading.Event()

    async def slow(self: RedisSession, attempt: RedisAttempt, timeout: float) -> Found:
        ended.wait(0.3)  # descheduled after the lease has ended locally, before the request
        return await release(self, attempt, timeout)

    monkeypatch.setattr(RedisSession, "release", slow)
    holdfast.connect(redis_url, ttl=LASTING).lock("kept").acquire().release()
    with holdfast.connect(redis_url) as locks:
        assert locks.inspect("kept").holders == ()
