"""A holder frozen past its lease writes to Redis when it wakes up: without the fence an update is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast.fencing import RedisFence
from tests.fencing.frozen import late_write
from tests.servers.redis import RedisServer

_CONNECT = """
import redis
client = redis.Redis.from_url(sys.argv[2])
from holdfast.fencing import RedisFence
fence = RedisFence(client)
"""
_FENCED = (_CONNECT + "value = int(fence.get('balance', lease))", "fence.set('balance', value + 10, lease)")
_PLAIN = (_CONNECT + "value = int(client.get('balance'))", "client.set('balance', value + 10)")


@pytest.mark.parametrize("holder, outcome, left", [(_FENCED, "refused", 105), (_PLAIN, "wrote", 110)])
def test_fence_refuses_a_late_write_that_otherwise_loses_the_newer_update(
    holder: tuple[str, str], outcome: str, left: int, redis_server: RedisServer, tmp_path: Path
) -> None:
    client = redis_server.client()
    client.set("balance", 100)
    fence = RedisFence(client)

    def deposit_5(lease: holdfast.Lease) -> None:
        if holder is _FENCED:
            fence.set("balance", int(fence.get("balance", lease)) + 5, lease)
        else:
            client.incrby("balance", 5)

    assert late_write(tmp_path, *holder, redis_server.url, meanwhile=deposit_5) == outcome
    assert int(client.get("balance") or 0) == left
