"""kazoo's Lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import kazoo.exceptions
from kazoo.client import KazooClient

from bench.peers import TTL, Mutex, Pair


class _Mutex:
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
def pair(kind: str, where: str, name: str) -> Iterator[Pair]:
    with mutexes(kind, where) as make:
        mutex = make(name)

        def once() -> None:
            mutex.acquire(TTL)
            mutex.release()

        yield once


@contextmanager
def mutexes(kind: str, where: str) -> Iterator[Callable[[str], Mutex]]:
    client = KazooClient(urlsplit(where).netloc, timeout=TTL)
    client.start()
    try:
        yield lambda name: _Mutex(client.Lock(f"{urlsplit(where).path}/{name}-of-kazoo"))
    finally:
        client.stop()
        client.close()
