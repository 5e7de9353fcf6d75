"""python-redis-lock: SET NX, and BLPOP while it waits. Without its renewal thread, which each lock would have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis
import redis_lock

from bench.peers import TTL, Mutex, Pair


class _Mutex:
    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def acquire(self, timeout: float) -> bool:
        return bool(self._lock.acquire(timeout=max(1, min(round(timeout), int(TTL)))))  # it waits in whole seconds

    def release(self) -> None:
        self._lock.release()


@contextmanager
def pair(kind: str, where: str, name: str) -> Iterator[Pair]:
    with redis.Redis.from_url(where) as client:
        lock: Any = redis_lock.Lock(client, name, expire=int(TTL))

        def once() -> None:
            lock.acquire()
            lock.release()

        yield once


@contextmanager
def mutexes(kind: str, where: str) -> Iterator[Callable[[str], Mutex]]:
    with redis.Redis.from_url(where) as client:
        yield lambda name: _Mutex(redis_lock.Lock(client, name, expire=int(TTL)))
