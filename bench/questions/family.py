"""One caller, no contention: what do a read lock, a semaphore and a monitor cost beside an exclusive lock?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import holdfast
from bench.harness import MICROSECONDS, Answer, Scale, race
from bench.mutexes import TTL
from bench.placement import redis_beside

TITLE: Final = "Redis, sync: the family, uncontended"

_LOCK: Final = "lock: acquire + release"
_READ: Final = "rwlock, read: acquire + release"
_WRITE: Final = "rwlock, write: acquire + release"
_PERMIT: Final = "semaphore: acquire + release"
_MONITOR: Final = "monitor: one operation"
_COUNTED: Final = 20


class Counter(holdfast.Monitor):
    """The smallest monitor that has something to load and to store."""

    value: int = 0

    @holdfast.synchronized
    def increment(self) -> None:
        self.value += 1


def ask(scale: Scale) -> Answer:
    with redis_beside() as server, holdfast.connect(server.url, ttl=TTL) as locks:
        lock, rwlock, semaphore = locks.lock("lock"), locks.rwlock("rwlock"), locks.semaphore("semaphore", 3)
        counter = Counter(locks, "counter")
        candidates: dict[str, Callable[[], object]] = {
            _LOCK: lambda: lock.acquire().release(),
            _READ: lambda: rwlock.read.acquire().release(),
            _WRITE: lambda: rwlock.write.acquire().release(),
            _PERMIT: lambda: semaphore.acquire().release(),
            _MONITOR: counter.increment,
        }
        figures = race(candidates, rounds=scale(21, 5), pairs=scale(200, 40))
        requests = _requests(server.client(), counter.increment)
    answer = Answer(
        "Client and server on one core; µs for one acquire and one release of an object that is reused, and for one "
        "operation of a monitor: acquire, load, store, release.",
        figures,
        drawn=(MICROSECONDS, "less"),
    )
    for name, limit in ((_READ, 1.3), (_PERMIT, 1.3), (_MONITOR, 2.2)):
        ratio = answer.ratio(name, _LOCK, MICROSECONDS)
        answer.promise(f"Redis, {name}: against our own lock", str(ratio), f"≤ {limit}×", ratio.value <= limit)
    answer.promise("Redis, monitor: requests for one operation", f"{requests:g}", "≤ 4", requests <= 4)
    return answer


def _requests(probe: Any, operation: Callable[[], object]) -> float:
    """How many scripts the server runs for one call, those of the watchdog apart: it sleeps for seconds."""
    before = _scripts(probe)
    for _ in range(_COUNTED):
        operation()
    return (_scripts(probe) - before) / _COUNTED


def _scripts(probe: Any) -> int:
    stats = probe.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])
