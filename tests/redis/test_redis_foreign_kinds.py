"""A name that Java uses as another kind at the same time: RReadWriteLock and RFairLock, by what they write."""

from __future__ import annotations

import logging
import uuid
from typing import Any, Final

import pytest

import holdfast
from tests.servers.redis import RedisServer
from tests.support.waiting import eventually

JAVA: Final = f"{uuid.uuid4()}:1"


def lock_in_java(server: RedisServer, mode: str) -> None:
    """What an RReadWriteLock does: it looks for its mode only, and finds none in the hash of a plain lock."""
    assert server.ask("HGET", "stock", "mode") is None
    server.ask("HSET", "stock", "mode", mode, JAVA if mode == "read" else f"{JAVA}:write", "1")
    server.ask("PEXPIRE", "stock", 30_000)


@pytest.mark.parametrize("mode", ["read", "write"])
def test_lock_that_java_takes_as_a_read_write_lock_is_lost_and_the_cause_is_logged(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    with caplog.at_level(logging.ERROR, "holdfast"), holdfast.connect(redis_server.url, ttl=3) as locks:
        lease = locks.lock("stock").acquire()
        lock_in_java(redis_server, mode)
        eventually(lambda: not lease.held, within=20)
        assert lease.lost_reason == "stolen"
        eventually(lambda: "another program used its name for another kind" in caplog.text)
        with pytest.raises(holdfast.LockLost):
            lease.release()
    assert redis_server.ask("HGETALL", "stock") == {"mode": mode, JAVA if mode == "read" else f"{JAVA}:write": "1"}


@pytest.mark.parametrize("how", ["release", "renew"])
def test_lease_without_a_watchdog_reports_it_with_its_next_request(redis_server: RedisServer, how: str) -> None:
    with holdfast.connect(redis_server.url, renew=False) as locks:
        lease = locks.lock("stock").acquire()
        lock_in_java(redis_server, "write")
        with pytest.raises(holdfast.LockLost) as lost:
            getattr(lease, how)()
        assert lost.value.reason == "stolen"
    assert redis_server.ask("HGETALL", "stock") == {"mode": "write", f"{JAVA}:write": "1"}


def test_hold_that_java_has_left_behind_is_removed(redis_server: RedisServer) -> None:
    """Redisson's writer finds another field when it unlocks, takes it for its own reader's, and leaves the lock."""
    with holdfast.connect(redis_server.url, renew=False) as locks:
        lease = locks.lock("stock").acquire()
        redis_server.ask("HSET", "stock", "mode", "read")
        with pytest.raises(holdfast.LockLost):
            lease.renew()
        assert redis_server.ask("EXISTS", "stock") == 0
        locks.lock("stock").acquire(timeout=5).release()


@pytest.mark.parametrize("how", ["release", "break_"])
def test_head_of_redissons_fair_queue_is_woken(redis_server: RedisServer, how: str) -> None:
    """A waiting RFairLock listens on a channel of its own."""
    second = f"{uuid.uuid4()}:1"
    redis_server.ask("RPUSH", "redisson_lock_queue:{stock}", JAVA, second)
    client: Any = redis_server.client(decode_responses=True)
    with client.pubsub(ignore_subscribe_messages=True) as listening:
        listening.psubscribe("redisson_lock__channel:*")
        assert listening.get_message(timeout=5) is None  # the answer to the subscription
        with holdfast.connect(redis_server.url) as locks:
            lease = locks.lock("stock").acquire()
            if how == "release":
                lease.release()
            else:
                assert locks.break_("stock")
            heard = [eventually(lambda: listening.get_message(timeout=1)) for _ in range(2)]
    assert {(each["channel"], each["data"]) for each in heard} == {
        ("redisson_lock__channel:{stock}", "0"),
        (f"redisson_lock__channel:{{stock}}:{JAVA}", "0"),
    }
