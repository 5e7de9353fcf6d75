"""One caller, one name, on one machine: the embedded engine beside the file lock that most people use."""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import ExitStack
from typing import Final

from bench.harness import MICROSECONDS, Answer, Scale, race
from bench.peers import FILELOCK, HOLDFAST, Pair, pair, present
from bench.placement import one_core

TITLE: Final = "SQLite, sync: uncontended acquire + release"

_FLOOR: Final = "floor: flock() on an open file"


def ask(scale: Scale) -> Answer:
    kinds, missing = present((FILELOCK, HOLDFAST))
    with (
        one_core(),
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory,
        ExitStack() as stack,
    ):
        where = {FILELOCK: f"{directory}/theirs", HOLDFAST: f"sqlite://{directory}/locks.db"}
        fd = os.open(f"{directory}/floor.lock", os.O_RDWR | os.O_CREAT, 0o600)
        stack.callback(os.close, fd)

        def floor() -> None:
            fcntl.flock(fd, fcntl.LOCK_EX)
            fcntl.flock(fd, fcntl.LOCK_UN)

        candidates: dict[str, Pair] = {_FLOOR: floor}
        for kind in kinds:
            candidates[kind] = stack.enter_context(pair(kind, where[kind], "uncontended"))
        figures = race(candidates, rounds=scale(21, 5), pairs=scale(300, 60))
    answer = Answer(
        "One core; lock files in one temporary directory. filelock has no leases, tokens or queue.",
        figures,
        remarks=missing,
        drawn=(MICROSECONDS, "less"),
    )
    ratio = answer.ratio(HOLDFAST, FILELOCK, MICROSECONDS)
    answer.at_most("SQLite, uncontended pair: against filelock's FileLock", ratio, 0.35, 0.25)
    return answer
