"""A client that nobody closed: ``with holdfast.connect(url).lock("x"):`` leaves nothing behind and warns of nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from pathlib import Path

import pytest

import holdfast
from holdfast.engines.base import Claim, Found
from holdfast.engines.redis.session import RedisSession
from tests.faults.threads import threads
from tests.faults.waiting import eventually


@pytest.fixture(params=["memory", "sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "redis":
        return str(request.getfixturevalue("redis_url"))
    return "memory:forgotten" if request.param == "memory" else f"sqlite:{tmp_path / 'locks.db'}"


def threads_and_descriptors() -> tuple[int, int]:
    gc.collect()
    return len(threads()), len(os.listdir("/proc/self/fd"))


@pytest.mark.needs_redis
def test_a_client_made_for_one_lock_ends_with_it(url: str) -> None:
    before = threads_and_descriptors()
    with holdfast.connect(url).lock("one-liner") as lease:
        assert lease.held
    del lease
    eventually(lambda: threads_and_descriptors() == before)


@pytest.mark.needs_redis
def test_a_lease_outlives_the_client_object(url: str) -> None:
    before = threads_and_descriptors()
    lease = holdfast.connect(url, ttl=0.8).lock("kept").acquire()
    gc.collect()
    assert not lease.lost.wait(1.3), "renewed although the client object is garbage"
    lease.release()
    del lease
    eventually(lambda: threads_and_descriptors() == before)


@pytest.mark.needs_redis
async def test_an_async_client_made_for_one_lock_ends_with_it(url: str) -> None:
    before = threads_and_descriptors()
    async with holdfast.aio.connect(url).lock("one-liner") as lease:
        assert lease.held
    del lease
    async with asyncio.timeout(5):
        while threads_and_descriptors() != before:
            await asyncio.sleep(0.01)


def test_a_release_under_way_keeps_the_session(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is garbage while its last lease is being released, and nothing else is held: the watchdog ended, and
    closed the session under the release."""
    release = RedisSession.release
    ended = threading.Event()

    async def slow(self: RedisSession, claim: Claim, timeout: float) -> Found:
        ended.wait(0.3)  # descheduled between the end of belief and the request
        return await release(self, claim, timeout)

    monkeypatch.setattr(RedisSession, "release", slow)
    holdfast.connect(redis_url, ttl=2).lock("kept").acquire().release()
    with holdfast.connect(redis_url) as locks:
        assert locks.inspect("kept").holders == ()
