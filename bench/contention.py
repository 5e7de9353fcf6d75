"""Threads that acquire as often as they can for a given time, one name or one each: their grants, waits and cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from bench.harness import percentile
from bench.peers import Mutex, mutexes
from bench.server_cost import ServerMeter
from bench.workers import Workers, ready

RATE: Final = "acquisitions/s"
SHARE: Final = "least share"
MEDIAN_WAIT: Final = "p50 wait, ms"
LATE_WAIT: Final = "p99 wait, ms"
LONGEST_WAIT: Final = "longest wait, ms"
CPU: Final = "clients' CPU, µs each"
SERVER_CPU: Final = "server's CPU, µs each"
COMMANDS: Final = "commands each"

# A wait that is still going on at the end is given this many seconds more, so that a long wait is counted.
_GRACE: Final = 2.0


class Tally(NamedTuple):
    """The counts of one process."""

    grants: int
    turns: int  #: grants, including those after the end: they were work for the server, too
    waits: list[float]  #: seconds, of each acquire
    cpu: float  #: seconds


def contended(
    kind: str, where: str, workers: Workers, seconds: float, *, threads: int = 1, server: ServerMeter | None = None
) -> Mapping[str, float]:
    """One round: all processes of ``workers``, of ``threads`` threads each, contend for one name."""
    arguments: list[tuple[Any, ...]] = [(kind, where, "contended", threads, seconds)] * workers.size
    tallies = workers.work(contend, arguments, at_start=None if server is None else server.start)
    return measures(tallies, seconds, server)


def measures(tallies: Sequence[Tally], seconds: float, server: ServerMeter | None = None) -> dict[str, float]:
    spent = None if server is None else server.spent()
    grants, turns = sum(tally.grants for tally in tallies), sum(tally.turns for tally in tallies)
    waits = [wait * 1000 for tally in tallies for wait in tally.waits]
    found = {
        RATE: grants / seconds,
        SHARE: min(tally.grants for tally in tallies) * len(tallies) / grants,
        MEDIAN_WAIT: percentile(waits, 0.5),
        LATE_WAIT: percentile(waits, 0.99),
        LONGEST_WAIT: max(waits),
        CPU: sum(tally.cpu for tally in tallies) / turns * 1e6,
    }
    if spent is not None:
        found |= {SERVER_CPU: spent.cpu / turns * 1e6, COMMANDS: spent.commands / turns}
    return found


def contend(kind: str, where: str, name: str, threads: int, seconds: float, own_names: bool = False) -> Tally:
    """In a worker process: ``threads`` threads acquire ``name``, or a name each. The lock's body is empty."""
    with mutexes(kind, where) as make:
        made = [make(f"{name}:{number}" if own_names else name) for number in range(threads)]
        for mutex in made if own_names else made[:1]:  # connections and scripts
            if not mutex.acquire(60.0):
                raise RuntimeError(f"{kind} did not get its first lock")
            mutex.release()
        ready()
        cpu, end = time.process_time(), time.monotonic() + seconds
        tallies = [_take_turns(made[0], end)] if threads == 1 else _in_threads(made, end)
        cpu = time.process_time() - cpu
    if len(tallies) < threads:
        raise RuntimeError(f"{kind}: {threads - len(tallies)} of {threads} threads failed")
    waits = [wait for tally in tallies for wait in tally.waits]
    return Tally(sum(tally.grants for tally in tallies), sum(tally.turns for tally in tallies), waits, cpu)


def _in_threads(made: Sequence[Mutex], end: float) -> list[Tally]:
    tallies: list[Tally] = []

    def run(mutex: Mutex) -> Callable[[], None]:
        return lambda: tallies.append(_take_turns(mutex, end))

    running = [threading.Thread(target=run(mutex)) for mutex in made]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return tallies


def _take_turns(mutex: Mutex, end: float) -> Tally:
    grants, turns = 0, 0
    waits: list[float] = []
    while (asked := time.monotonic()) < end:
        granted = mutex.acquire(end - asked + _GRACE)
        now = time.monotonic()
        waits.append(now - asked)
        if granted:
            mutex.release()
            grants += now < end
            turns += 1
    return Tally(grants, turns, waits, 0.0)
