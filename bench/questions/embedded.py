"""One caller, one name, on one machine: the embedded engine beside the file lock that most people use."""

from __future__ import annotations

import fcntl
import os
import tempfile
from typing import Final

import filelock

import holdfast
from bench.harness import MICROSECONDS, Answer, Scale, race
from bench.mutexes import FILELOCK, HOLDFAST, TTL
from bench.placement import one_core

TITLE: Final = "SQLite, sync: uncontended acquire + release"

_FLOOR: Final = "floor: flock() on an open file"


def ask(scale: Scale) -> Answer:
    with (
        one_core(),
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory,
        holdfast.connect(f"sqlite://{directory}/locks.db", ttl=TTL) as locks,
    ):
        lock, theirs = locks.lock("ours"), filelock.FileLock(f"{directory}/theirs.lock")
        fd = os.open(f"{directory}/floor.lock", os.O_RDWR | os.O_CREAT, 0o600)

        def ours() -> None:
            lock.acquire().release()

        def peer() -> None:
            theirs.acquire()
            theirs.release()

        def floor() -> None:
            fcntl.flock(fd, fcntl.LOCK_EX)
            fcntl.flock(fd, fcntl.LOCK_UN)

        figures = race({_FLOOR: floor, FILELOCK: peer, HOLDFAST: ours}, rounds=scale(21, 5), pairs=scale(300, 60))
        os.close(fd)
    answer = Answer(
        "One core; lock files in one temporary directory. Neither peer has leases, tokens or a queue.",
        figures,
        drawn=(MICROSECONDS, "less"),
    )
    ratio = answer.ratio(HOLDFAST, FILELOCK, MICROSECONDS)
    answer.promise("SQLite, uncontended pair: against filelock's FileLock", str(ratio), "≤ 0.6×", ratio.value <= 0.6)
    return answer
