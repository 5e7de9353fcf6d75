"""Compare and delete in one Lua script: nothing can happen between the two."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

import redis

RELEASE = """
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('del', KEYS[1])
end
return 0
"""


class Lock:
    def __init__(self, addresses: Sequence[str], name: str, lease: float) -> None:
        self.redis = redis.Redis.from_url(addresses[0])
        self.name = name
        self.milliseconds = round(lease * 1000)
        self.value = uuid.uuid4().hex.encode()

    def acquire(self) -> None:
        while True:
            if self.redis.set(self.name, self.value, nx=True, px=self.milliseconds):
                return  # <- taken
            time.sleep(0.01)  # <- busy

    def release(self) -> None:
        self.redis.eval(RELEASE, 1, self.name, self.value)  # <- delete
