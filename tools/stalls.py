"""Runs a command, and stops one of its child processes for a moment, again and again: ``python -m tools.stalls CMD…``.

``make stalls`` runs the tests in this way. On a busy machine, or a virtual one, a process may not run for tenths of
a second at any instruction. A test that fails here takes that for a fault of the library, or has a lease that is too
short for what it does.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

#: Seconds between two stops, and how long one lasts.
PAUSE: Final = (0.2, 0.8)
STOP: Final = (0.12, 0.35)


def children(pid: int) -> list[int]:
    """The child processes of ``pid``: of pytest, its workers."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
    except OSError:
        return []  # it has ended


def stop_for(pid: int, seconds: float) -> None:
    """Stop a process that may end meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)


def main(command: list[str]) -> int:
    stops = 0
    with subprocess.Popen(command) as running:
        while running.poll() is None:
            time.sleep(random.uniform(*PAUSE))
            if found := children(running.pid):
                stop_for(random.choice(found), random.uniform(*STOP))
                stops += 1
    print(f"processes were stopped {stops} times", file=sys.stderr)
    return running.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
