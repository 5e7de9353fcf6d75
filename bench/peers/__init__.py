"""The compared locks behind one interface, one module for each library. Only the ones that are compared are imported.

A module has some of these functions; ``kind`` is one of the names below, ``where`` a URL or a path:

* ``pair(kind, where, name)``: yields a function that acquires and releases ``name`` once, without anything around it
* ``mutexes(kind, where)``: yields a function that makes a :class:`Mutex` on a name for one thread; all share a client
* ``async_pairs(kind, where, names)``: yields an async function for each name that acquires and releases it once

Peers that run on a JVM have another interface: ``jvm.py``.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Final, Protocol

HOLDFAST: Final = "holdfast"
HOLDFAST_FAIR: Final = "holdfast, fair"
REDIS_PY: Final = "redis-py Lock"
REDIS_PY_EAGER: Final = "redis-py Lock, sleep=0.001"
REDIS_ASYNCIO: Final = "redis.asyncio Lock"
PYTHON_REDIS_LOCK: Final = "python-redis-lock"
VALKEY_GLIDE: Final = "valkey-glide, SET NX + script"
VALKEY_GLIDE_SYNC: Final = "valkey-glide-sync, SET NX + script"
POTTERY: Final = "pottery Redlock"
FILELOCK: Final = "filelock FileLock"
KAZOO: Final = "kazoo Lock"

#: Seconds. Every peer that has leases gets the same.
TTL: Final = 30.0

#: The module of each, and the distribution that it needs.
_PEERS: Final = {
    HOLDFAST: ("ours", "holdfast-locks"),
    HOLDFAST_FAIR: ("ours", "holdfast-locks"),
    REDIS_PY: ("redis_py", "redis"),
    REDIS_PY_EAGER: ("redis_py", "redis"),
    REDIS_ASYNCIO: ("redis_asyncio", "redis"),
    PYTHON_REDIS_LOCK: ("python_redis_lock", "python-redis-lock"),
    VALKEY_GLIDE: ("valkey_glide", "valkey-glide"),
    VALKEY_GLIDE_SYNC: ("valkey_glide_sync", "valkey-glide-sync"),
    POTTERY: ("pottery", "pottery"),
    FILELOCK: ("filelock", "filelock"),
    KAZOO: ("kazoo", "kazoo"),
}
#: The distributions of all peers.
DISTRIBUTIONS: Final = tuple(sorted({distribution for _, distribution in _PEERS.values()} - {"holdfast-locks"}))

Pair = Callable[[], object]
AsyncPair = Callable[[], Awaitable[object]]


class Mutex(Protocol):
    """A lock as one thread uses it."""

    def acquire(self, timeout: float) -> bool: ...

    def release(self) -> None: ...


def pair(kind: str, where: str, name: str) -> AbstractContextManager[Pair]:
    found: AbstractContextManager[Pair] = _module(kind).pair(kind, where, name)
    return found


def mutexes(kind: str, where: str) -> AbstractContextManager[Callable[[str], Mutex]]:
    found: AbstractContextManager[Callable[[str], Mutex]] = _module(kind).mutexes(kind, where)
    return found


def async_pairs(kind: str, where: str, names: Sequence[str]) -> AbstractAsyncContextManager[list[AsyncPair]]:
    found: AbstractAsyncContextManager[list[AsyncPair]] = _module(kind).async_pairs(kind, where, names)
    return found


def present(kinds: Sequence[str]) -> tuple[list[str], list[str]]:
    """The kinds that can be measured here, and for each of the others a sentence that names it and says why not."""
    found, missing = [], []
    for kind in kinds:
        try:
            _module(kind)
        except ImportError as error:
            missing.append(f"Not measured: {kind}; {_PEERS[kind][1]} cannot be imported ({error}).")
        else:
            found.append(kind)
    return found, missing


def _module(kind: str) -> Any:
    return importlib.import_module(f"bench.peers.{_PEERS[kind][0]}")
