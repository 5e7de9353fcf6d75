"""16 threads, each with a name of its own: pairs a second of one process, on the JVM too."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from bench.contention import contend
from bench.harness import Figure, Round, Scale, interleave
from bench.peers import jvm, present
from bench.peers.jvm import Racer, racers
from bench.workers import Workers

THREADS: Final = 16
RATE: Final = "pairs/s"
CPU: Final = "client's CPU, µs a pair"
CONDITIONS: Final = f"One process of {THREADS} threads, each with a name of its own; no body."


def compare(
    kinds: tuple[str, ...], java: str, where: str, address: str, scale: Scale
) -> tuple[list[Figure], list[str]]:
    """The figures, and the sentences about the kinds that are missing. ``where`` and ``address``: the server."""
    here, missing = present(kinds)
    seconds = scale(2000, 500) / 1000
    with Workers(1) as workers, racers(java, address, 1, THREADS, quick=scale.quick) as on_jvm:
        candidates: dict[str, Round] = {kind: partial(_in_worker, kind, where, workers, seconds) for kind in here}
        if on_jvm:
            candidates[java] = partial(_on_jvm, on_jvm[0], seconds)
        return interleave(candidates, rounds=scale(3, 1)), missing + jvm.missing(java)


def _in_worker(kind: str, where: str, workers: Workers, seconds: float) -> Mapping[str, float]:
    (tally,) = workers.work(contend, [(kind, where, "parallel", THREADS, seconds, True)])
    return {RATE: tally.grants / seconds, CPU: tally.cpu / tally.turns * 1e6}


def _on_jvm(racer: Racer, seconds: float) -> Mapping[str, float]:
    pairs = racer.pairs("parallel", THREADS, seconds)
    return {RATE: pairs.done / seconds, CPU: pairs.cpu / pairs.done * 1e6}
