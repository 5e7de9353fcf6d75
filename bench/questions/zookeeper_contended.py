"""2, 8 and 32 threads acquire one name on ZooKeeper in turns: acquisitions a second, and the servers' cost of each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from bench.contention import RATE, contend, measures
from bench.harness import Answer, Figure, Scale, interleave
from bench.peers import HOLDFAST, KAZOO, present
from bench.workers import Workers
from tests.servers.zookeeper import Operations, ZooKeeperServer

TITLE: Final = "ZooKeeper: 2 to 32 contenders, one name"

#: Processes, and threads in each.
_CONTENDERS: Final = ((2, 1), (4, 2), (4, 8))
_MAIN: Final = 8
_OPERATIONS: Final = "operations each"


def ask(scale: Scale) -> Answer:
    kinds, missing = present((KAZOO, HOLDFAST))
    figures: list[Figure] = []
    with ZooKeeperServer() as server:
        for processes, threads in _CONTENDERS:
            with Workers(processes) as workers:
                seconds = scale(2000, 500) / 1000
                candidates = {kind: partial(_contended, kind, threads, workers, server, seconds) for kind in kinds}
                figures += interleave(candidates, scale(3, 1), processes * threads)
    answer = Answer(
        "2, 8 and 32 contenders in 2 to 4 processes on all cores; no body. Operations are counted by the server: "
        "requests that name a path.",
        figures,
        remarks=missing,
        drawn=(_OPERATIONS, "less"),
    )
    few, many = (answer.figure(HOLDFAST, _OPERATIONS, size).median for size in (2, 32))
    answer.promise(
        "ZooKeeper, operations for an acquisition: 32 contenders against 2",
        f"{many:.1f} / {few:.1f} = {many / few:.2f}×",
        "≤ 1.25×: does not grow",
        many <= 1.25 * few,
    )
    ratio = answer.ratio(HOLDFAST, KAZOO, RATE, _MAIN)
    answer.at_least(f"ZooKeeper, {_MAIN} contenders, one name: acquisitions/s against kazoo's", ratio, 1)
    return answer


def _contended(
    kind: str, threads: int, workers: Workers, server: ZooKeeperServer, seconds: float
) -> Mapping[str, float]:
    before: list[Operations] = []
    arguments: list[tuple[Any, ...]] = [(kind, server.url, "contended", threads, seconds)] * workers.size
    tallies = workers.work(contend, arguments, at_start=lambda: before.append(server.operations()))
    spent = server.operations().since(before[0])
    turns = sum(tally.turns for tally in tallies)
    return measures(tallies, seconds) | {_OPERATIONS: (spent.reads + spent.writes) / turns}
