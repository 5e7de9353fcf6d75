"""What /proc shows of processes, and waiting for their end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

_DEATH_WITHIN: Final = 20.0


def started_with(variable: str, value: str) -> list[int]:
    """Every process that was started with this environment variable, zombies not counted."""
    mark = f"{variable}={value}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            continue  # ended meanwhile, or of another user
    return found


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def state(pid: int) -> str:
    """One letter, as ps shows it; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def end_child(child: subprocess.Popen[str], within: float = 10.0) -> None:
    """End a child that reads commands until its input is closed; by SIGKILL, if it does not end. It may be frozen."""
    assert child.stdin is not None
    if child.poll() is None:
        child.send_signal(signal.SIGCONT)
    child.stdin.close()
    try:
        child.wait(within)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(within)


class Death:
    """The end of a process, which need not be a child of this one. Made while the process lives."""

    def __init__(self, pid: int) -> None:
        self._handle = os.pidfd_open(pid)

    def happened(self, within: float = 0.0) -> bool:
        return bool(select.select([self._handle], (), (), within)[0])

    def wait(self, within: float = _DEATH_WITHIN) -> float:
        """Until the process has ended; the time at which that was seen."""
        assert self.happened(within), "still alive"
        return time.monotonic()

    def __del__(self) -> None:
        os.close(self._handle)
