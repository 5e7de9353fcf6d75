"""One process waits, another releases: how long until the waiter holds the lock?"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import redis

from bench import workers as worker_process
from bench.commands import CommandCounter
from bench.harness import Answer, Scale, interleave, percentile
from bench.mutexes import HOLDFAST, REDIS_PY, REDIS_PY_EAGER, mutexes
from bench.workers import Workers
from tests.servers.redis import RedisServer

TITLE: Final = "Redis: hand-over latency, one waiter"

_FLOOR: Final = "floor: BLPOP woken by LPUSH (redis-py)"
_P50: Final = "p50, ms"
_P95: Final = "p95, ms"
_COMMANDS: Final = "commands a turn"
# Held for this long, in seconds: a range wider than redis-py's polling period, so that every phase of it occurs.
_HELD: Final = (0.020, 0.130)
_TIMEOUT: Final = 30.0


def ask(scale: Scale) -> Answer:
    turns = scale(50, 10)
    with RedisServer() as server, Workers(2) as workers:
        counter = CommandCounter(server.client())
        kinds = (_FLOOR, REDIS_PY, REDIS_PY_EAGER, HOLDFAST)
        candidates = {kind: _round(kind, workers, server, counter, turns) for kind in kinds}
        figures = interleave(candidates, rounds=scale(3, 1))
    answer = Answer(
        "Two processes on all cores; from the call of release in one to the return of acquire in the other. "
        "Held 20–130 ms. Includes the wake-up of an idle core. A turn is two acquisitions.",
        figures,
        drawn=(_P50, "less"),
    )
    ours, theirs = answer.figure(HOLDFAST, _P50), answer.figure(REDIS_PY, _P50)
    answer.promise(
        "Redis, hand-over latency with one waiter: p50 against redis-py's Lock",
        f"{ours.median:.2f} ms against {theirs.median:.1f} ms",
        "less",
        ours.median < theirs.median,
    )
    return answer


def _round(
    kind: str, workers: Workers, server: RedisServer, counter: CommandCounter, turns: int
) -> Callable[[], Mapping[str, float]]:
    def measure() -> Mapping[str, float]:
        task = _bare if kind == _FLOOR else _locked
        arguments: list[tuple[Any, ...]] = [(kind, server.url, role, turns) for role in ("holder", "waiter")]
        released, acquired = workers.work(task, arguments, at_start=counter.start)
        spans = [(after - before) * 1000 for before, after in zip(released, acquired, strict=True)]
        return {_P50: percentile(spans, 0.5), _P95: percentile(spans, 0.95), _COMMANDS: counter.count() / turns}

    return measure


def _locked(kind: str, url: str, role: str, turns: int) -> list[float]:
    """In a worker: when each release began, or when each acquire returned, on the clock of the whole machine."""
    times = []
    with mutexes(kind, url, "handed") as make:
        mutex = make()
        worker_process.ready()
        for _ in range(turns):
            if role == "holder":
                _take(mutex.acquire)
                worker_process.meet()
                time.sleep(random.uniform(*_HELD))
                times.append(time.monotonic())
                mutex.release()
            else:
                worker_process.meet()
                _take(mutex.acquire)
                times.append(time.monotonic())
                mutex.release()
            worker_process.meet()
    return times


def _take(acquire: Callable[[float], bool]) -> None:
    if not acquire(_TIMEOUT):
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
