"""A hash that counts re-entries, a watchdog that renews the lease, a channel that wakes waiters, as in Redisson."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from typing import Any

import redis

ACQUIRE = """
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
    redis.call('hincrby', KEYS[1], ARGV[1], 1)
    return redis.call('pexpire', KEYS[1], ARGV[2])
end
return 0
"""
RENEW = "return redis.call('hexists', KEYS[1], ARGV[1]) == 1 and redis.call('pexpire', KEYS[1], ARGV[2]) or 0"
RELEASE = """
if redis.call('hexists', KEYS[1], ARGV[1]) == 1 and redis.call('hincrby', KEYS[1], ARGV[1], -1) == 0 then
    redis.call('del', KEYS[1])
    redis.call('publish', KEYS[1] .. ':released', '')
end
"""


class Lock:
    def __init__(self, addresses: Sequence[str], name: str, lease: float) -> None:
        self.redis = redis.Redis.from_url(addresses[0])
        self.name, self.lease = name, lease
        self.value = uuid.uuid4().hex
        self.released: Any = redis.client.PubSub(self.redis.connection_pool, ignore_subscribe_messages=True)
        self.released.subscribe(f"{name}:released")
        self.stop = threading.Event()

    def acquire(self) -> None:
        while True:
            if self._run(ACQUIRE):
                threading.Thread(target=self._renew, daemon=True).start()  # <- taken
                return
            self.released.get_message(timeout=0.05)  # <- busy

    def release(self) -> None:
        self.stop.set()
        self._run(RELEASE)  # <- delete

    def _renew(self) -> None:
        while not self.stop.wait(self.lease / 3) and self._run(RENEW):
            pass

    def _run(self, script: str) -> object:
        return self.redis.eval(script, 1, self.name, self.value, str(round(self.lease * 1000)))
