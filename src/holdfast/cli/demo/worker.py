"""The processes of the demo. Orders come in by stdin, one word a line; what happened goes out by stdout, as JSON.

``add COUNTER TIMES [URL]``  add one to the number, again and again: under the lock of URL, or without any.
``hold COUNTER URL FENCE``   hold the lock and write when told to, late or not.
"""

from __future__ import annotations

import ctypes
import json
import random
import signal
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import holdfast
from holdfast.cli.demo import counter
from holdfast.fencing import FileFence

LOCK: Final = "demo:counter"
RESOURCE: Final = "counter"
#: Seconds of work between reading the number and writing it back.
WORK: Final = 0.004
#: Seconds between two updates of one process, at most.
REST: Final = 0.030
#: Lease of the holder that is going to be frozen. Short, since the audience waits for it to run out.
TTL: Final = 1.0
#: Longest wait for a lock, so that a demo that went wrong ends.
PATIENCE: Final = 10.0


def say(kind: str, **facts: Any) -> None:
    print(json.dumps({"kind": kind, **facts}), flush=True)


def told(order: str) -> bool:
    """Wait for the next order; False once the demo is over, or gone."""
    return sys.stdin.readline().strip() == order


def add(path: Path, times: int, url: str | None) -> None:
    with holdfast.connect(url) if url else nullcontext() as locks:
        say("ready")
        if not told("go"):
            return
        for _ in range(times):
            time.sleep(random.uniform(0.0, REST))
            lock: AbstractContextManager[Any] = locks.lock(LOCK, timeout=PATIENCE) if locks else nullcontext()
            with lock:
                entered = time.monotonic()
                value = counter.read(path)
                time.sleep(WORK)
                counter.write(path, value + 1)
                left = time.monotonic()
            say("added", entered=entered, left=left)


def hold(path: Path, url: str, fence: FileFence) -> None:
    with holdfast.connect(url) as locks:
        say("ready")
        if not told("acquire"):
            return
        lease = locks.lock(LOCK, ttl=TTL).acquire(timeout=PATIENCE)
        say("holds", token=lease.token)
        if told("write"):
            _write(path, fence, lease)
            told("leave")
        try:
            lease.release()
        except holdfast.LockLost:
            pass  # said already


def _write(path: Path, fence: FileFence, lease: holdfast.Lease) -> None:
    try:
        lease.check()
    except holdfast.LockLost as lost:
        say("lost", reason=lost.reason)  # a careful program stops here; this one is not careful
    try:
        with fence.guard(RESOURCE, lease):
            value = counter.read(path) + 1
            counter.write(path, value)
        say("wrote", value=value)
    except holdfast.StaleToken as refused:
        say("refused", token=refused.token, seen=refused.seen)


def die_with_parent() -> None:
    """Have the kernel end this process with the demo. Closing stdin does not reach one that is frozen."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def main(program: str, path: str, *arguments: str) -> None:
    die_with_parent()
    if program == "add":
        add(Path(path), int(arguments[0]), arguments[1] if arguments[1:] else None)
    else:
        hold(Path(path), arguments[0], FileFence(arguments[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
