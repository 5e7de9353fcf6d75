"""SET NX PX: the key and its expiry in one command."""

from __future__ import annotations

import time
from collections.abc import Sequence

import redis


class Lock:
    def __init__(self, addresses: Sequence[str], name: str, lease: float) -> None:
        self.redis = redis.Redis.from_url(addresses[0])
        self.name = name
        self.milliseconds = round(lease * 1000)

    def acquire(self) -> None:
        while True:
            if self.redis.set(self.name, "locked", nx=True, px=self.milliseconds):
                return  # <- taken
            time.sleep(0.01)  # <- busy

    def release(self) -> None:
        self.redis.delete(self.name)  # <- delete
