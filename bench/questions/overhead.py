"""The cost of the core: the memory engine does next to nothing, so nearly all of the time is spent in the core."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

import holdfast
import holdfast.aio
from bench.harness import CLIENT_CPU, MICROSECONDS, Answer, Scale, interleave, race
from bench.peers import TTL
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
    answer = Answer("One core, one thread or one task, no server.", figures, drawn=(MICROSECONDS, "less"))
    # CPU time: nothing is waited for here, and other load on the machine hardly changes it.
    answer.at_most("memory: pair (the core's own cost), CPU", answer.figure(_SYNC, CLIENT_CPU).median, 9, 6, " µs")
    return answer


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
    async def measure() -> Mapping[str, float]:
        async with holdfast.aio.connect("memory:bench", ttl=TTL) as locks:
            lock = locks.lock("ours")
            await (await lock.acquire()).release()
            cpu, start = time.process_time(), time.perf_counter()
            for _ in range(pairs):
                await (await lock.acquire()).release()
            elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
        return {MICROSECONDS: elapsed / pairs * 1e6, CLIENT_CPU: cpu / pairs * 1e6}

    return lambda: runner.run(measure())
