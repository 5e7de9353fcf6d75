"""Locks with a timeout are left to expire: neither their end nor that of their client releases them."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import redis

from holdfast.compat.redis_py import Lock, outliving
from tests.support.waiting import eventually


@pytest.fixture
def client(redis_url: str) -> Any:
    with redis.Redis.from_url(redis_url) as client:
        yield client


def test_lock_left_to_expire_is_not_released_when_dropped_while_its_client_is_open(client: Any) -> None:
    """A dropped handle would have the watchdog withdraw its lock. The watchdog withdraws in order, so when a lock that
    is dropped later is free, it has had its chance."""
    left = Lock(client, "left", timeout=30)
    left.acquire()
    outliving.leave_all()
    del left
    gc.collect()
    dropped = Lock(client, "dropped")
    dropped.acquire()
    with pytest.warns(ResourceWarning, match="dropped"):
        del dropped
    eventually(lambda: not client.exists("dropped"), 5, "the dropped lock is free")
    assert client.exists("left")
