"""Redlock: a majority of independent masters must grant it, while enough of the lease is left."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

RENEW = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pexpire', KEYS[1], ARGV[2]) or 0"
RELEASE = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1]) or 0"


class Lock:
    def __init__(self, addresses: Sequence[str], name: str, lease: float) -> None:
        once = Retry(NoBackoff(), 0)
        self.masters: list[Any] = [
            redis.Redis.from_url(each, socket_timeout=lease / 3, retry=once) for each in addresses
        ]
        self.name, self.lease = name, lease
        self.milliseconds = round(lease * 1000)
        self.value = uuid.uuid4().hex.encode()
        self.stop = threading.Event()

    def acquire(self) -> None:
        while True:
            began, granted = time.monotonic(), 0
            for master in self.masters:
                if self._ask(master, "SET", self.name, self.value, "NX", "PX", self.milliseconds):
                    granted += 1  # <- taken
            drift = self.lease * 0.01 + 0.002
            if granted > len(self.masters) // 2 and time.monotonic() - began < self.lease - drift:
                self.stop.clear()  # <- checked
                threading.Thread(target=self._renew, daemon=True).start()
                return
            self.release()
            time.sleep(0.02)  # <- busy

    def release(self) -> None:
        self.stop.set()  # <- delete
        for master in self.masters:
            self._ask(master, "EVAL", RELEASE, 1, self.name, self.value)

    def _renew(self) -> None:
        while not self.stop.wait(self.lease / 3):
            for master in self.masters:
                self._ask(master, "EVAL", RENEW, 1, self.name, self.value, self.milliseconds)

    def _ask(self, master: Any, *command: str | bytes | int) -> bool:
        try:
            return bool(master.execute_command(*command))
        except redis.RedisError:
            return False  # a master that does not answer has not granted
