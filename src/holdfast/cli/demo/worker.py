"""A worker process of the demo. It reads commands from stdin, one word a line, and writes messages to stdout, as JSON.

``add COUNTER TIMES [URL]``  add one to the number, TIMES times: under a lock of URL, or without one.
``hold COUNTER URL FENCE``   acquire the lock and write, each on its command, even if the lock is lost by then.
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
#: Lease of the holder that will be frozen. Short, since the demo waits until it expires.
TTL: Final = 1.0
#: Longest wait for a lock, so that a demo that hangs ends.
ACQUIRE_TIMEOUT: Final = 10.0


def report(kind: str, **facts: Any) -> None:
    print(json.dumps({"kind": kind, **facts}), flush=True)


def received(command: str) -> bool:
    """Wait for the next command. False if it is another one, or if the demo has closed the pipe."""
    return sys.stdin.readline().strip() == command


def add(path: Path, times: int, url: str | None) -> None:
    with holdfast.connect(url) if url else nullcontext() as locks:
        report("ready")
        if not received("go"):
            return
        for _ in range(times):
            time.sleep(random.uniform(0.0, REST))
            lock: AbstractContextManager[Any] = locks.lock(LOCK, timeout=ACQUIRE_TIMEOUT) if locks else nullcontext()
            with lock:
                entered = time.monotonic()
                value = counter.read(path)
                time.sleep(WORK)
                counter.write(path, value + 1)
                left = time.monotonic()
            report("added", entered=entered, left=left)


def hold(path: Path, url: str, fence: FileFence) -> None:
    with holdfast.connect(url) as locks:
        report("ready")
        if not received("acquire"):
            return
        lease = locks.lock(LOCK, ttl=TTL).acquire(timeout=ACQUIRE_TIMEOUT)
        report("holds", token=lease.token)
        if received("write"):
            _write(path, fence, lease)
            received("leave")
        try:
            lease.release()
        except holdfast.LockLost:
            pass  # reported already


def _write(path: Path, fence: FileFence, lease: holdfast.Lease) -> None:
    try:
        lease.check()
    except holdfast.LockLost as lost:
        report("lost", reason=lost.reason)  # a correct program stops here; this one writes anyway
    try:
        with fence.guard(RESOURCE, lease):
            value = counter.read(path) + 1
            counter.write(path, value)
        report("wrote", value=value)
    except holdfast.StaleToken as refused:
        report("refused", token=refused.token, seen=refused.seen)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies. A frozen process does not notice a closed stdin."""
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
