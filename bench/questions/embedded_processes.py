"""Eight processes of one machine contend for one name: the embedded engine beside filelock."""

from __future__ import annotations

import tempfile
from functools import partial
from typing import Final

from bench.contention import LATE_WAIT, LONGEST_WAIT, RATE, contended
from bench.harness import Answer, Scale, interleave
from bench.peers import FILELOCK, HOLDFAST, HOLDFAST_FAIR, present
from bench.workers import Workers

TITLE: Final = "SQLite: eight processes, one name"

_PROCESSES: Final = 8


def ask(scale: Scale) -> Answer:
    kinds, missing = present((FILELOCK, HOLDFAST_FAIR, HOLDFAST))
    seconds = scale(2000, 500) / 1000
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory, Workers(_PROCESSES) as workers:
        where = dict.fromkeys(kinds, f"sqlite://{directory}/locks.db") | {FILELOCK: f"{directory}/theirs"}
        candidates = {kind: partial(contended, kind, where[kind], workers, seconds) for kind in kinds}
        figures = interleave(candidates, rounds=scale(5, 1))
    answer = Answer(
        f"{_PROCESSES} processes of one thread each on all cores; no body. Least share: grants of the process that got "
        "fewest, against an even share (1 = even).",
        figures,
        remarks=missing,
        drawn=(RATE, "more"),
    )
    what = f"SQLite, {_PROCESSES} processes, one name"
    answer.at_least(f"{what}: acquisitions/s against filelock's", answer.ratio(HOLDFAST, FILELOCK, RATE), 1)
    answer.at_most(f"{what}: p99 wait against filelock's", answer.ratio(HOLDFAST, FILELOCK, LATE_WAIT), 0.25)
    answer.compare(f"{what}: longest wait against filelock's", answer.ratio(HOLDFAST, FILELOCK, LONGEST_WAIT))
    return answer
