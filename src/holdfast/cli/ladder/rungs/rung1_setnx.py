"""SETNX: the key exists while the lock is held."""

from __future__ import annotations

import time
from collections.abc import Sequence

import redis


class Lock:
    def __init__(self, addresses: Sequence[str], name: str, lease: float) -> None:
        self.redis = redis.Redis.from_url(addresses[0])
        self.name = name

    def acquire(self) -> None:
        while True:
            if self.redis.setnx(self.name, "locked"):
                return  # <- taken
            time.sleep(0.01)  # <- busy

    def release(self) -> None:
        self.redis.delete(self.name)  # <- delete
