"""1 to 32 processes acquire one name in turns, as fast as they can: acquisitions a second, and the cost of each."""

from __future__ import annotations

from functools import partial
from typing import Final

from bench.contention import COMMANDS, CPU, LATE_WAIT, LONGEST_WAIT, RATE, SHARE, contended
from bench.harness import Answer, Curve, Figure, Scale, interleave
from bench.peers import HOLDFAST, HOLDFAST_FAIR, PYTHON_REDIS_LOCK, REDIS_PY, present
from bench.server_cost import ServerMeter
from bench.workers import Workers
from tests.servers.redis import RedisServer

TITLE: Final = "Redis: 1 to 32 processes, one name"

_SIZES: Final = (1, 2, 4, 8, 16, 32)
#: The size that the targets against redis-py are about, with more rounds and more peers.
_MAIN: Final = 8


def ask(scale: Scale) -> Answer:
    seconds = scale(1500, 300) / 1000
    few, _ = present((REDIS_PY, HOLDFAST))
    all_of_them, missing = present((REDIS_PY, PYTHON_REDIS_LOCK, HOLDFAST_FAIR, HOLDFAST))
    figures: list[Figure] = []
    with RedisServer() as server:
        meter = ServerMeter(server.client())
        for size in _SIZES:
            with Workers(size) as workers:
                candidates = {
                    kind: partial(contended, kind, server.url, workers, seconds, server=meter)
                    for kind in (all_of_them if size == _MAIN else few)
                }
                figures += interleave(candidates, scale(5 if size == _MAIN else 3, 1), size)
    answer = Answer(
        "Processes of one thread each on all cores; no body. Commands are counted by the server, those inside scripts "
        "included. Least share: grants of the process that got fewest, against an even share (1 = even).",
        figures,
        remarks=missing,
        curves=[
            Curve(RATE, "processes", "more"),
            Curve(COMMANDS, "processes", "less"),
            Curve(CPU, "processes", "less"),
        ],
    )
    _add_targets(answer)
    answer.remarks.append(
        "redis-py's rate is that of a process which takes the lock again before another one has woken up: see its "
        "least share and longest wait. p99 is over all acquires: if more than 99 % of them are such repeated ones, it "
        "leaves out the waits of all other processes, and jumps between runs. The longest wait does not."
    )
    return answer


def _add_targets(answer: Answer) -> None:
    what = f"Redis, {_MAIN} processes, one name"
    answer.at_least(
        f"{what}: acquisitions/s against redis-py's", answer.ratio(HOLDFAST, REDIS_PY, RATE, _MAIN), 1.5, 1.9
    )
    answer.at_most(
        f"{what}: p99 wait against redis-py's", answer.ratio(HOLDFAST, REDIS_PY, LATE_WAIT, _MAIN), 0.1, 0.05
    )
    answer.compare(f"{what}: longest wait against redis-py's", answer.ratio(HOLDFAST, REDIS_PY, LONGEST_WAIT, _MAIN))
    answer.at_least(f"{what}: least share", answer.figure(HOLDFAST, SHARE, _MAIN).median, 0.9)
    least, most = _SIZES[1], _SIZES[-1]
    commands = {size: answer.figure(HOLDFAST, COMMANDS, size).median for size in _SIZES[1:]}
    answer.at_most(f"Redis, commands for an acquisition, {least} to {most} processes", max(commands.values()), 14, 12)
    answer.promise(
        f"Redis, commands for an acquisition: {most} processes against {least}",
        f"{commands[most]:.1f} / {commands[least]:.1f} = {commands[most] / commands[least]:.2f}×",
        "≤ 1.25×: does not grow",
        commands[most] <= 1.25 * commands[least],
        headline=True,
    )
