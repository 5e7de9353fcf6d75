"""Threads that take one name as often as they can, for a while, and what they saw."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from bench.mutexes import Mutex, mutexes
from bench.workers import ready

# A wait that is still going on when the time is up is followed this much longer, so that it shows.
_GRACE: Final = 2.0


class Tally(NamedTuple):
    """Of one process."""

    grants: int
    longest_wait: float
    turns: int  #: grants, and those that came when the time was up: the server has worked for them, too


def hammer(kind: str, where: str, name: str, threads: int, seconds: float) -> Tally:
    """In a worker of a crew: ``threads`` threads fight for ``name`` for ``seconds``. The body of the lock is empty."""
    with mutexes(kind, where, name) as make:
        warm = make()
        if not warm.acquire(60.0):
            raise RuntimeError(f"{kind} did not get its first lock")
        warm.release()
        ready()
        end = time.monotonic() + seconds
        tallies: list[Tally] = []
        if threads == 1:
            return _fight(make(), end)
        workers = [threading.Thread(target=_into, args=(tallies, make, end)) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if len(tallies) < threads:
            raise RuntimeError(f"{kind}: {threads - len(tallies)} of {threads} threads failed")
        grants, waits, turns = zip(*tallies, strict=True)
        return Tally(sum(grants), max(waits), sum(turns))


def _into(tallies: list[Tally], make: Callable[[], Mutex], end: float) -> None:
    tallies.append(_fight(make(), end))


def _fight(mutex: Mutex, end: float) -> Tally:
    grants, longest, turns = 0, 0.0, 0
    while (asked := time.monotonic()) < end:
        granted = mutex.acquire(end - asked + _GRACE)
        now = time.monotonic()
        longest = max(longest, now - asked)
        if granted:
            mutex.release()
            grants += now < end
            turns += 1
    return Tally(grants, longest, turns)
