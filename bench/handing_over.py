"""One process holds, another waits: how long from the call of release in one to the return of acquire in the other?"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any, Final

import redis

from bench import workers as worker_process
from bench.harness import percentile
from bench.peers import Mutex, mutexes
from bench.peers.jvm import Racer
from bench.server_cost import ServerMeter
from bench.workers import Workers

P50: Final = "p50, ms"
P95: Final = "p95, ms"
COMMANDS: Final = "commands a turn"
FLOOR: Final = "floor: BLPOP woken by LPUSH (redis-py)"
CONDITIONS: Final = (
    "Two processes on all cores; from the call of release in one to the return of acquire in the other. "
    "Held 20–130 ms. Includes the wake-up of an idle core. A turn is two acquisitions."
)
# Held for this long, in seconds: a range wider than redis-py's polling period, so that every phase of it occurs.
_HELD: Final = (0.020, 0.130)
_TIMEOUT: Final = 30.0
_NAME: Final = "handed"


def between_workers(
    kind: str, where: str, workers: Workers, turns: int, server: ServerMeter | None = None
) -> Mapping[str, float]:
    """One round between two worker processes."""
    task = _bare if kind == FLOOR else _locked
    arguments: list[tuple[Any, ...]] = [(kind, where, role, turns) for role in ("holder", "waiter")]
    released, acquired = workers.work(task, arguments, at_start=None if server is None else server.start)
    return _measures(released, acquired, server)


def between_jvms(holder: Racer, waiter: Racer, turns: int, server: ServerMeter | None = None) -> Mapping[str, float]:
    """One round between two JVMs."""
    released, acquired = [], []
    if server is not None:
        server.start()
    for _ in range(turns):
        holder.acquire(_NAME)
        holder.time()
        waiter.acquire(_NAME)
        time.sleep(random.uniform(*_HELD))
        holder.release(_NAME)
        released.append(holder.time())
        acquired.append(waiter.time())
        waiter.release(_NAME)
        waiter.time()
    return _measures(released, acquired, server)


def _measures(released: list[float], acquired: list[float], server: ServerMeter | None) -> Mapping[str, float]:
    spans = [(after - before) * 1000 for before, after in zip(released, acquired, strict=True)]
    found = {P50: percentile(spans, 0.5), P95: percentile(spans, 0.95)}
    if server is not None:
        found[COMMANDS] = server.spent().commands / len(spans)
    return found


def _locked(kind: str, where: str, role: str, turns: int) -> list[float]:
    """In a worker: when each release began, or when each acquire returned, on the clock of the whole machine."""
    times = []
    with mutexes(kind, where) as make:
        mutex = make(_NAME)
        worker_process.ready()
        for _ in range(turns):
            if role == "holder":
                _take(mutex)
                worker_process.meet()
                time.sleep(random.uniform(*_HELD))
                times.append(time.monotonic())
                mutex.release()
            else:
                worker_process.meet()
                _take(mutex)
                times.append(time.monotonic())
                mutex.release()
            worker_process.meet()
    return times


def _take(mutex: Mutex) -> None:
    if not mutex.acquire(_TIMEOUT):
        raise RuntimeError("the lock was not handed over")


def _bare(kind: str, url: str, role: str, turns: int) -> list[float]:
    times = []
    with redis.Redis.from_url(url) as client:
        client.ping()
        worker_process.ready()
        for _ in range(turns):
            worker_process.meet()
            if role == "holder":
                time.sleep(random.uniform(*_HELD))
                times.append(time.monotonic())
                client.lpush("handed:list", "1")
            else:
                client.blpop(["handed:list"], timeout=int(_TIMEOUT))
                times.append(time.monotonic())
            worker_process.meet()
    return times
