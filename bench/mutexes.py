"""The compared locks behind one interface, for the questions in which several processes contend for one name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import filelock
import kazoo.exceptions
import redis
import redis.exceptions
from kazoo.client import KazooClient

import holdfast

HOLDFAST: Final = "holdfast"
HOLDFAST_FAIR: Final = "holdfast, fair"
REDIS_PY: Final = "redis-py Lock"
REDIS_PY_EAGER: Final = "redis-py Lock, sleep=0.001"
FILELOCK: Final = "filelock FileLock"
KAZOO: Final = "kazoo Lock"

TTL: Final = 30.0


class Mutex(Protocol):
    """A lock as one thread uses it."""

    def acquire(self, timeout: float) -> bool: ...

    def release(self) -> None: ...


class _Holdfast:
    def __init__(self, lock: holdfast.Lock) -> None:
        self._lock = lock
        self._lease: holdfast.Lease | None = None

    def acquire(self, timeout: float) -> bool:
        self._lease = self._lock.try_acquire(timeout=timeout)
        return self._lease is not None

    def release(self) -> None:
        assert self._lease is not None
        self._lease.release()


class _RedisPy:
    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def acquire(self, timeout: float) -> bool:
        return bool(self._lock.acquire(blocking_timeout=timeout))

    def release(self) -> None:
        self._lock.release()


class _FileLock:
    def __init__(self, path: str) -> None:
        self._lock = filelock.FileLock(path)

    def acquire(self, timeout: float) -> bool:
        try:
            self._lock.acquire(timeout=timeout)
        except filelock.Timeout:
            return False
        return True

    def release(self) -> None:
        self._lock.release()


class _Kazoo:
    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def acquire(self, timeout: float) -> bool:
        try:
            return bool(self._lock.acquire(timeout=timeout))
        except kazoo.exceptions.LockTimeout:
            return False

    def release(self) -> None:
        self._lock.release()


@contextmanager
def mutexes(kind: str, where: str, name: str) -> Iterator[Callable[[], Mutex]]:
    """Yields a function that makes a mutex on ``name`` for one thread. All share one client. ``where``: URL or path."""
    with ExitStack() as stack:
        if kind in (HOLDFAST, HOLDFAST_FAIR):
            locks = stack.enter_context(holdfast.connect(where, ttl=TTL))
            yield lambda: _Holdfast(locks.lock(name, fair=kind == HOLDFAST_FAIR))
        elif kind in (REDIS_PY, REDIS_PY_EAGER):
            client = redis.Redis.from_url(where)
            stack.callback(client.close)
            sleep = 0.001 if kind == REDIS_PY_EAGER else 0.1
            yield lambda: _RedisPy(client.lock(name, timeout=TTL, sleep=sleep))
        elif kind == KAZOO:
            zookeeper = KazooClient(urlsplit(where).netloc, timeout=TTL)
            zookeeper.start()
            stack.callback(zookeeper.close)
            stack.callback(zookeeper.stop)
            yield lambda: _Kazoo(zookeeper.Lock(f"{urlsplit(where).path}/{name}-of-kazoo"))
        elif kind == FILELOCK:
            yield lambda: _FileLock(f"{where}.{name}.lock")
        else:
            raise ValueError(kind)
