"""Two processes take turns by a condition: how long from the notify until the waiter is inside again?"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import holdfast
from bench import workers as worker_process
from bench.harness import Answer, Scale, interleave, percentile
from bench.workers import Workers
from tests.servers.redis import RedisServer

TITLE: Final = "Redis: hand-over by a condition, one waiter"

_LOCK: Final = "lock: release to acquire"
_CONDITION: Final = "condition: notify and release to the return of wait"
_P50: Final = "p50, ms"
_P95: Final = "p95, ms"
_TIMEOUT: Final = 30.0
#: The waiter sleeps by then.
_HELD: Final = 0.03


def ask(scale: Scale) -> Answer:
    turns = scale(60, 10)
    with RedisServer() as server, Workers(2) as workers:
        candidates = {
            name: _round(task, workers, server.url, turns) for name, task in ((_LOCK, _lock), (_CONDITION, _condition))
        }
        figures = interleave(candidates, rounds=scale(5, 1))
    answer = Answer(
        "Two processes on all cores. Lock: from the call of release in one to the return of acquire in the other. "
        "Condition: from the release that follows a notify to the return of wait, which has the lock again by then.",
        figures,
        drawn=(_P50, "less"),
    )
    ratio = answer.ratio(_CONDITION, _LOCK, _P50)
    answer.at_most("Redis, hand-over by a condition: p50 against a lock", ratio, 2.5)
    return answer


def _round(
    task: Callable[..., list[float]], workers: Workers, url: str, turns: int
) -> Callable[[], Mapping[str, float]]:
    def measure() -> Mapping[str, float]:
        arguments: list[tuple[Any, ...]] = [(url, role, turns) for role in ("first", "second")]
        before, after = workers.work(task, arguments)
        spans = [(end - start) * 1000 for start, end in zip(before, after, strict=True)]
        return {_P50: percentile(spans, 0.5), _P95: percentile(spans, 0.95)}

    return measure


def _lock(url: str, role: str, turns: int) -> list[float]:
    """In a worker: when each release began, or when each acquire returned, on the clock of the whole machine."""
    times = []
    with holdfast.connect(url) as locks:
        lock = locks.lock("handed")
        locks.ping()
        worker_process.ready()
        for _ in range(turns):
            if role == "first":
                lease = lock.acquire(timeout=_TIMEOUT)
                worker_process.meet()
                time.sleep(_HELD)
                times.append(time.monotonic())
                lease.release()
            else:
                worker_process.meet()
                lease = lock.acquire(timeout=_TIMEOUT)
                times.append(time.monotonic())
                lease.release()
            worker_process.meet()
    return times


def _condition(url: str, role: str, turns: int) -> list[float]:
    """In a worker: when each release after a notify began, or when each wait returned."""
    times = []
    with holdfast.connect(url) as locks:
        lock = locks.lock("waited")
        changed = locks.condition(lock)
        locks.ping()
        worker_process.ready()
        for _ in range(turns):
            if role == "first":
                worker_process.meet()  # the waiter holds the lock: acquired below once it waits
                lease = lock.acquire(timeout=_TIMEOUT)
                time.sleep(_HELD)
                changed.notify()
                times.append(time.monotonic())
                lease.release()
            else:
                lease = lock.acquire(timeout=_TIMEOUT)
                worker_process.meet()
                if not changed.wait(_TIMEOUT):
                    raise RuntimeError("the notify did not arrive")
                times.append(time.monotonic())
                lease.release()
            worker_process.meet()
    return times
