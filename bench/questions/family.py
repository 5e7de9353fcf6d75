"""One caller, no contention: what do a read lock, a semaphore and a monitor cost beside an exclusive lock?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import holdfast
from bench.harness import MICROSECONDS, Answer, Scale, race
from bench.peers import TTL
from bench.placement import redis_beside
from bench.server_cost import ServerMeter

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
        figures = race(candidates, rounds=scale(21, 5), pairs=scale(200, 40), servers=ServerMeter(server.client()))
        requests = _requests(server.client(), counter.increment)
    answer = Answer(
        "Client and server on one core; µs for one acquire and one release of an object that is reused, and for one "
        "operation of a monitor: acquire and load, store and release.",
        figures,
        drawn=(MICROSECONDS, "less"),
    )
    for name, limit in ((_READ, 1.3), (_PERMIT, 1.3), (_MONITOR, 2.2)):
        ratio = answer.ratio(name, _LOCK, MICROSECONDS)
        answer.at_most(f"Redis, {name}: against our own lock", ratio, limit)
    answer.promise("Redis, monitor: requests for one operation", f"{requests:g}", "≤ 2", requests <= 2)
    return answer


def _requests(probe: Any, operation: Callable[[], object]) -> float:
    """How many scripts the server runs for one call, those of the watchdog apart: it sleeps for seconds."""
    meter = ServerMeter(probe)
    for _ in range(_COUNTED):
        operation()
    return meter.spent().scripts / _COUNTED
