"""P processes acquire one name on ZooKeeper in turns: hand-overs a second, and the servers' cost of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from bench.contention import contend
from bench.harness import Answer, Figure, Scale, interleave
from bench.mutexes import HOLDFAST, KAZOO
from bench.workers import Workers
from tests.servers.zookeeper import Operations, ZooKeeperServer

TITLE: Final = "ZooKeeper: contended hand-over between processes"

#: Processes, and threads in each.
_CONTENDERS: Final = ((2, 1), (4, 2), (4, 8))
_RATE: Final = "hand-overs/s"
_OPERATIONS: Final = "operations each"


def ask(scale: Scale) -> Answer:
    figures: list[Figure] = []
    with ZooKeeperServer() as server:
        for processes, threads in _CONTENDERS:
            with Workers(processes) as workers:
                candidates = {
                    f"{processes * threads} × {kind}": _round(
                        kind, processes, threads, workers, server, scale(2000, 500)
                    )
                    for kind in (KAZOO, HOLDFAST)
                }
                figures += interleave(candidates, rounds=scale(3, 1))
    answer = Answer(
        "2, 8 and 32 contenders in 2 to 4 processes on all cores; no body. Operations are counted by the server: "
        "requests that name a path.",
        figures,
        drawn=(_OPERATIONS, "less"),
    )
    few, many = (answer.figure(f"{size} × {HOLDFAST}", _OPERATIONS).median for size in (2, 32))
    answer.promise(
        "ZooKeeper, operations for each hand-over: 32 contenders against 2",
        f"{many:.1f} / {few:.1f} = {many / few:.2f}×",
        "≤ 1.25×: does not grow",
        many <= 1.25 * few,
    )
    ours, theirs = (answer.figure(f"8 × {kind}", _RATE).median for kind in (HOLDFAST, KAZOO))
    answer.promise(
        "ZooKeeper, contended hand-over with 8 contenders: against kazoo's Lock",
        f"{ours:.0f}/s against {theirs:.0f}/s",
        "no slower",
        ours >= theirs,
    )
    return answer


def _round(
    kind: str, processes: int, threads: int, workers: Workers, server: ZooKeeperServer, milliseconds: int
) -> Callable[[], Mapping[str, float]]:
    def measure() -> Mapping[str, float]:
        before: list[Operations] = []
        arguments: list[tuple[Any, ...]] = [(kind, server.url, "contended", threads, milliseconds / 1000)] * processes
        tallies = workers.work(contend, arguments, at_start=lambda: before.append(server.operations()))
        spent = server.operations().since(before[0])
        grants = sum(tally.grants for tally in tallies)
        turns = sum(tally.turns for tally in tallies)
        return {_RATE: grants / (milliseconds / 1000), _OPERATIONS: (spent.reads + spent.writes) / turns}

    return measure
