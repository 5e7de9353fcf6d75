"""Threads that acquire one name as often as they can for a given time, and the counts of their grants and waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from bench.mutexes import Mutex, mutexes
from bench.workers import ready

# A wait that is still going on at the end is given this many seconds more, so that a long wait is counted.
_GRACE: Final = 2.0


class Tally(NamedTuple):
    """The counts of one process."""

    grants: int
    longest_wait: float
    turns: int  #: grants, including those after the end: they were work for the server, too


def contend(kind: str, where: str, name: str, threads: int, seconds: float) -> Tally:
    """In a worker process: ``threads`` threads contend for ``name`` for ``seconds``. The lock's body is empty."""
    with mutexes(kind, where, name) as make:
        warm = make()
        if not warm.acquire(60.0):
            raise RuntimeError(f"{kind} did not get its first lock")
        warm.release()
        ready()
        end = time.monotonic() + seconds
        tallies: list[Tally] = []
        if threads == 1:
            return _take_turns(make(), end)
        running = [threading.Thread(target=_into, args=(tallies, make, end)) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        if len(tallies) < threads:
            raise RuntimeError(f"{kind}: {threads - len(tallies)} of {threads} threads failed")
        grants, waits, turns = zip(*tallies, strict=True)
        return Tally(sum(grants), max(waits), sum(turns))


def _into(tallies: list[Tally], make: Callable[[], Mutex], end: float) -> None:
    tallies.append(_take_turns(make(), end))


def _take_turns(mutex: Mutex, end: float) -> Tally:
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
