"""Which cores client and server run on. Migrating a process, or waking an idle core, costs more than a lock."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.servers.redis import RedisServer


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def pin(process: int | str, to: Iterable[int]) -> None:
    """Keep every thread of a process on these cores. Threads that it starts later inherit that."""
    for thread in os.listdir(f"/proc/{process}/task"):
        try:
            os.sched_setaffinity(int(thread), to)
        except ProcessLookupError:
            pass  # ended meanwhile


@contextmanager
def pinned(to: Iterable[int]) -> Iterator[None]:
    """Keep this process, and the children that it starts, on these cores."""
    before = cores()
    pin("self", to)
    try:
        yield
    finally:
        pin("self", before)


@contextmanager
def one_core() -> Iterator[None]:
    """This process and its children share one core: what is measured is work, not the wake-up of an idle core."""
    with pinned(cores()[:1]):
        yield


@contextmanager
def redis_beside() -> Iterator[RedisServer]:
    """A Redis on the same single core as this process."""
    with one_core(), RedisServer() as server:
        yield server


@contextmanager
def redis_apart() -> Iterator[RedisServer]:
    """A Redis on a core of its own, this process on another: they run in parallel, and neither migrates."""
    everywhere = cores()
    with pinned(everywhere[:1]), RedisServer() as server:
        pin(server.pid, everywhere[-1:])
        yield server
