"""SETNX, then EXPIRE: the key of a dead holder goes away by itself."""

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
            if self.redis.setnx(self.name, "locked"):
                self.redis.pexpire(self.name, self.milliseconds)  # <- taken
                return
            time.sleep(0.01)  # <- busy

    def release(self) -> None:
        self.redis.delete(self.name)  # <- delete
