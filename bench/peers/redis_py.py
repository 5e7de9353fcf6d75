"""redis-py's Lock: SET NX, and polling while it waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis

from bench.peers import REDIS_PY_EAGER, TTL, Mutex, Pair


class _Mutex:
    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def acquire(self, timeout: float) -> bool:
        return bool(self._lock.acquire(blocking_timeout=timeout))

    def release(self) -> None:
        self._lock.release()


@contextmanager
def pair(kind: str, where: str, name: str) -> Iterator[Pair]:
    with redis.Redis.from_url(where) as client:
        lock = client.lock(name, timeout=TTL)

        def once() -> None:
            lock.acquire()
            lock.release()

        yield once


@contextmanager
def mutexes(kind: str, where: str) -> Iterator[Callable[[str], Mutex]]:
    sleep = 0.001 if kind == REDIS_PY_EAGER else 0.1
    with redis.Redis.from_url(where) as client:
        yield lambda name: _Mutex(client.lock(name, timeout=TTL, sleep=sleep))
