"""filelock's FileLock: flock() on a file for each name, and polling while it waits. ``where``: a path to begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import filelock

from bench.peers import Mutex, Pair


class _Mutex:
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


@contextmanager
def pair(kind: str, where: str, name: str) -> Iterator[Pair]:
    lock = filelock.FileLock(f"{where}.{name}.lock")

    def once() -> None:
        lock.acquire()
        lock.release()

    yield once


@contextmanager
def mutexes(kind: str, where: str) -> Iterator[Callable[[str], Mutex]]:
    yield lambda name: _Mutex(f"{where}.{name}.lock")
