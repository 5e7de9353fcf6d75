"""Leases of read locks at a RedisFence."""

from __future__ import annotations

import pytest

from holdfast.errors import StaleToken, UsageError
from holdfast.fencing import RedisFence
from holdfast.fencing.redis.keys import guard_key
from tests.servers.redis import RedisServer
from tests.support.readers import Reader


def test_reader_passes_if_it_is_not_older_and_leaves_the_guard_as_it_is(redis_server: RedisServer) -> None:
    client = redis_server.client()
    fence = RedisFence(client)
    assert fence.get("data", Reader(5)) is None
    assert client.get(guard_key("data")) is None
    fence.set("data", "1", 10, "writer")
    assert fence.get("data", Reader(10)) == b"1"
    assert fence.get("data", Reader(11)) == b"1"
    assert client.get(guard_key("data")) == b"10 +writer"
    for token in (9, 2):
        with pytest.raises(StaleToken) as refused:
            fence.get("data", Reader(token))
        assert (refused.value.token, refused.value.seen) == (token, 10)
    fence.set("data", "2", 10, "writer")


def test_reader_renews_the_ttl_of_the_guard_and_changes_no_data(redis_server: RedisServer) -> None:
    client = redis_server.client()
    fence = RedisFence(client, ttl=1000)
    fence.check("data", 10, "writer")
    client.pexpire(guard_key("data"), 5000)
    fence.check("data", Reader(10))
    assert client.pttl(guard_key("data")) > 500_000
    for change in (fence.delete, lambda key, lease: fence.set(key, "x", lease)):
        with pytest.raises(UsageError, match="read lease"):
            change("data", Reader(10))
