"""A unique value: check that the lock is still ours, then delete it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

import redis


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
        if self.redis.get(self.name) == self.value:
            self.redis.delete(self.name)  # <- delete
