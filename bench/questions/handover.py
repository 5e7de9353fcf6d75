"""P processes acquire one name in turns, as fast as they can: acquisitions a second, and the server's cost of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from bench.commands import CommandCounter
from bench.contention import contend
from bench.harness import Answer, Figure, Scale, interleave
from bench.mutexes import HOLDFAST, HOLDFAST_FAIR, REDIS_PY
from bench.workers import Workers
from tests.servers.redis import RedisServer

TITLE: Final = "Redis: contended hand-over between processes"

_PROCESSES: Final = (2, 8, 16)
_RATE: Final = "acquisitions/s"
_COMMANDS: Final = "commands each"
_SHARE: Final = "least share"
_WAIT: Final = "longest wait, ms"


def ask(scale: Scale) -> Answer:
    figures: list[Figure] = []
    with RedisServer() as server:
        counter = CommandCounter(server.client())
        for size in _PROCESSES:
            with Workers(size) as workers:
                candidates = {
                    f"{size} × {kind}": _round(kind, size, workers, server, counter, scale(2000, 500) / 1000)
                    for kind in (REDIS_PY, HOLDFAST_FAIR, HOLDFAST)
                }
                figures += interleave(candidates, rounds=scale(3, 1))
    answer = Answer(
        "P processes of one thread each on all cores; no body. Commands are counted by the server, those inside "
        "scripts included. Least share: grants of the process that got fewest, against an even share (1 = even).",
        figures,
        drawn=(_COMMANDS, "less"),
    )
    few, many = (answer.figure(f"{size} × {HOLDFAST}", _COMMANDS).median for size in (_PROCESSES[0], _PROCESSES[-1]))
    answer.promise(
        f"Redis, commands for each acquisition: {_PROCESSES[-1]} processes against {_PROCESSES[0]}",
        f"{many:.1f} / {few:.1f} = {many / few:.2f}×",
        "≤ 1.25×: does not grow",
        many <= 1.25 * few,
    )
    answer.remarks.append(
        "redis-py's rate is that of a process which takes the lock again before another one has woken up: see its "
        "least share and longest wait."
    )
    return answer


def _round(
    kind: str, size: int, workers: Workers, server: RedisServer, counter: CommandCounter, seconds: float
) -> Callable[[], Mapping[str, float]]:
    def measure() -> Mapping[str, float]:
        arguments: list[tuple[Any, ...]] = [(kind, server.url, "contended", 1, seconds)] * size
        tallies = workers.work(contend, arguments, at_start=counter.start)
        commands, grants = counter.count(), sum(tally.grants for tally in tallies)
        return {
            _RATE: grants / seconds,
            _COMMANDS: commands / grants,
            _SHARE: min(tally.grants for tally in tallies) * size / grants,
            _WAIT: max(tally.longest_wait for tally in tallies) * 1000,
        }

    return measure
