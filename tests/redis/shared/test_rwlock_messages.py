"""What the end of a hold on a read-write lock publishes for waiters in Java."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

import holdfast
from tests.servers.redis import RedisServer

CHANNEL = "redisson_rwlock:{table}"
#: "1" wakes the threads that sleep. One that is about to sleep misses it, and finds a "0".
ALL = ["1", "0", "0", "0", "0"]


@pytest.fixture
def locks(redis_server: RedisServer) -> Iterator[holdfast.Client]:
    with holdfast.connect(redis_server.url) as client:
        yield client


@pytest.fixture
def published(redis_server: RedisServer) -> Iterator[Callable[[], list[str]]]:
    """What was published since the last call."""
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client, client.pubsub() as listener:
        listener.subscribe(CHANNEL)
        assert (listener.get_message(timeout=5) or {})["type"] == "subscribe"

        def messages() -> list[str]:
            client.publish(CHANNEL, "over")  # from the same server, and so after what was published before
            found: list[str] = []
            while (message := listener.get_message(timeout=5)) is not None and message["data"] != "over":
                found.append(message["data"])
            return found

        yield messages


def test_end_of_a_write_wakes_readers_that_sleep_and_those_that_are_about_to(
    locks: holdfast.Client, published: Callable[[], list[str]]
) -> None:
    writing = locks.rwlock("table").write.acquire()
    assert published() == []
    writing.release()
    assert published() == ALL


def test_last_reader_wakes_one_writer_and_others_none(
    locks: holdfast.Client, redis_server: RedisServer, published: Callable[[], list[str]]
) -> None:
    with holdfast.connect(redis_server.url) as others:
        first, last = locks.rwlock("table").read.acquire(), others.rwlock("table").read.acquire()
        first.release()
        assert published() == []
        last.release()
    assert published() == ["0"]


def test_downgrade_and_break_wake_readers_too(locks: holdfast.Client, published: Callable[[], list[str]]) -> None:
    writing = locks.rwlock("table").write.acquire()
    reading = locks.rwlock("table").read.acquire()
    writing.release()
    assert published() == ALL
    assert locks.break_("table")
    assert published() == ALL
    with pytest.raises(holdfast.LockLost):
        reading.release()
