"""Eight threads in one process against one thread in another: does the single thread get its share?"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from typing import Any, Final

from bench.contention import contend
from bench.harness import Answer, Scale, interleave
from bench.peers import FILELOCK, HOLDFAST, REDIS_PY
from bench.workers import Workers
from tests.servers.redis import RedisServer

TITLE: Final = "Fairness: 8 threads in one process, 1 thread in another"

_THREADS: Final = 8
_SHARE: Final = "lone thread's share"
_WAIT: Final = "its longest wait, ms"
_RATE: Final = "grants/s, all"
_LEAST_SHARE: Final = 1 / 32
_LONGEST_WAIT: Final = 100.0


def ask(scale: Scale) -> Answer:
    seconds = scale(3000, 1000) / 1000
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory,
        RedisServer() as server,
        Workers(2) as workers,
    ):
        kinds = {
            f"{REDIS_PY}": (REDIS_PY, server.url),
            f"{HOLDFAST} on Redis": (HOLDFAST, server.url),
            f"{FILELOCK}": (FILELOCK, f"{directory}/files"),
            f"{HOLDFAST} on SQLite": (HOLDFAST, f"sqlite://{directory}/locks.db"),
        }
        candidates = {name: _round(kind, where, workers, seconds) for name, (kind, where) in kinds.items()}
        figures = interleave(candidates, rounds=scale(3, 1))
    answer = Answer(
        f"Two processes on all cores, {_THREADS} + 1 threads, one name, no body, {seconds:g} s a round. An even share "
        f"is 1/{_THREADS + 1} = {1 / (_THREADS + 1):.3f}. The reach holds in the worst round.",
        figures,
    )
    for engine in ("Redis", "SQLite"):
        share, wait = (answer.figure(f"{HOLDFAST} on {engine}", measure) for measure in (_SHARE, _WAIT))
        answer.promise(
            f"{engine}, 8 threads against 1: the lone thread's share",
            f"{share.low:.3f} at worst, {share.median:.3f} median",
            "≥ 1/32 (0.031)",
            share.low >= _LEAST_SHARE,
        )
        answer.promise(
            f"{engine}, 8 threads against 1: the lone thread's longest wait",
            f"{wait.high:.0f} ms at worst, {wait.median:.0f} ms median",
            "≤ 100 ms",
            wait.high <= _LONGEST_WAIT,
        )
    return answer


def _round(kind: str, where: str, workers: Workers, seconds: float) -> Callable[[], Mapping[str, float]]:
    def measure() -> Mapping[str, float]:
        arguments: list[tuple[Any, ...]] = [(kind, where, "fair", threads, seconds) for threads in (_THREADS, 1)]
        many, lone = workers.work(contend, arguments)
        grants = many.grants + lone.grants
        return {_SHARE: lone.grants / grants, _WAIT: max(lone.waits) * 1000, _RATE: grants / seconds}

    return measure
