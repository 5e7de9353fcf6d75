"""A client that nobody closed: ``with holdfast.connect(url).lock("x"):`` leaves nothing behind and warns of nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from pathlib import Path

import pytest

import holdfast
from holdfast.engines.base import Found
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.session import RedisSession
from tests.support.threads import new_since
from tests.support.waiting import LASTING, eventually, renewed


@pytest.fixture(params=["memory", "sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "redis":
        return str(request.getfixturevalue("redis_url"))
    return "memory:forgotten" if request.param == "memory" else f"sqlite:{tmp_path / 'locks.db'}"


class Before:
    """What there was when it was made. Less is no leak: something of an earlier test may have been on its way out."""

    def __init__(self) -> None:
        gc.collect()
        self._threads = set(threading.enumerate())
        self._descriptors = len(os.listdir("/proc/self/fd"))

    def nothing_is_left(self) -> bool:
        gc.collect()
        return not new_since(self._threads) and len(os.listdir("/proc/self/fd")) <= self._descriptors


@pytest.mark.needs_redis
def test_a_client_made_for_one_lock_ends_with_it(url: str) -> None:
    before = Before()
    with holdfast.connect(url).lock("one-liner") as lease:
        assert lease.held
    del lease
    eventually(before.nothing_is_left)


@pytest.mark.needs_redis
def test_a_lease_outlives_the_client_object(url: str) -> None:
    before = Before()
    lease = holdfast.connect(url, ttl=LASTING).lock("kept").acquire()
    gc.collect()
    eventually(renewed(lease))  # although the client object is garbage
    lease.release()
    del lease
    eventually(before.nothing_is_left)


@pytest.mark.needs_redis
async def test_an_async_client_made_for_one_lock_ends_with_it(url: str) -> None:
    before = Before()
    async with holdfast.aio.connect(url).lock("one-liner") as lease:
        assert lease.held
    del lease
    async with asyncio.timeout(5):
        while not before.nothing_is_left():
            await asyncio.sleep(0.01)


def test_a_release_under_way_keeps_the_session(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is garbage while its last lease is being released, and nothing else is held: the watchdog ended, and
    closed the session under the release."""
    release = RedisSession.release
    ended = threading.Event()

    async def slow(self: RedisSession, attempt: RedisAttempt, timeout: float) -> Found:
        ended.wait(0.3)  # descheduled between the end of belief and the request
        return await release(self, attempt, timeout)

    monkeypatch.setattr(RedisSession, "release", slow)
    holdfast.connect(redis_url, ttl=LASTING).lock("kept").acquire().release()
    with holdfast.connect(redis_url) as locks:
        assert locks.inspect("kept").holders == ()
