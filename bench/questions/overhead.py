"""The cost of the core: the memory engine does next to nothing, so nearly all of the time is spent in the core."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Final

import holdfast
import holdfast.aio
from bench.harness import MICROSECONDS, Answer, Scale, interleave, race
from bench.mutexes import TTL
from bench.placement import one_core

TITLE: Final = "memory: the core's own overhead"

_LOCK: Final = "floor: threading.Lock"
_SYNC: Final = "holdfast, acquire().release()"
_WITH: Final = "holdfast, with lock:"
_MAKE: Final = "holdfast, with client.lock(name):"
_CHECK: Final = "holdfast, lease.check() (one call)"
_ASYNC: Final = "holdfast.aio, acquire() and release()"


def ask(scale: Scale) -> Answer:
    rounds, pairs = scale(21, 5), scale(1000, 100)
    with one_core(), holdfast.connect("memory:bench", ttl=TTL) as locks, locks.lock("watched").acquire() as lease:
        figures = race({**_sync(locks), _CHECK: lease.check}, rounds=rounds, pairs=pairs)
    with one_core(), asyncio.Runner() as runner:
        figures += interleave({_ASYNC: _async(runner, pairs)}, rounds)
    return Answer("One core, one thread or one task, no server. Nothing was promised here.", figures)


def _sync(locks: holdfast.Client) -> Mapping[str, Callable[[], object]]:
    lock, local = locks.lock("ours"), threading.Lock()

    def floor() -> None:
        local.acquire()
        local.release()

    def pair() -> None:
        lock.acquire().release()

    def block() -> None:
        with lock:
            pass

    def made() -> None:
        with locks.lock("made"):
            pass

    return {_LOCK: floor, _SYNC: pair, _WITH: block, _MAKE: made}


def _async(runner: asyncio.Runner, pairs: int) -> Callable[[], Mapping[str, float]]:
    async def measure() -> float:
        async with holdfast.aio.connect("memory:bench", ttl=TTL) as locks:
            lock = locks.lock("ours")
            await (await lock.acquire()).release()
            loop = asyncio.get_running_loop()
            start = loop.time()
            for _ in range(pairs):
                await (await lock.acquire()).release()
            return loop.time() - start

    return lambda: {MICROSECONDS: runner.run(measure()) / pairs * 1e6}
