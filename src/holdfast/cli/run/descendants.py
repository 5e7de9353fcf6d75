"""All descendants of this process, and signals to them.

A process that adopts orphans (``kernel.adopt_orphans``) has a child as long as it has any descendant. So "no child"
(ECHILD) proves that no descendant is left, even if some fork meanwhile; the list from /proc is only used to signal.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

_PROC: Final = "/proc"


class Process(NamedTuple):
    """A process as /proc shows it. A pid may be reused; a pid with its start time identifies a process."""

    pid: int
    parent: int
    started: int


def running() -> list[Process]:
    """The descendants at this moment, without zombies. Incomplete while they fork and end: look again until ECHILD."""
    me = os.getpid()
    found = _all()
    children: dict[int, list[Process]] = {}
    for process in found.values():
        children.setdefault(process.parent, []).append(process)
    descendants: list[Process] = []
    parents = [me]
    while parents:
        below = children.pop(parents.pop(), [])
        descendants += below
        parents += [process.pid for process in below]
    return descendants


def send(processes: Iterable[Process], numbers: Iterable[int]) -> list[Process]:
    """Send signals to each of ``processes``. Returns those that may not be signalled: another user's (sudo)."""
    refused = []
    for process in processes:
        try:
            _send(process, numbers)
        except ProcessLookupError:
            continue
        except PermissionError:
            refused.append(process)
    return refused


def reap() -> tuple[dict[int, int], dict[int, int], bool]:
    """Collect the children that ended or stopped: (pid → status, pid → stop signal, whether any child is left)."""
    ended: dict[int, int] = {}
    stopped: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return ended, stopped, False
        if pid == 0:
            return ended, stopped, True
        if os.WIFSTOPPED(status):
            stopped[pid] = os.WSTOPSIG(status)
        else:
            ended[pid] = status
            stopped.pop(pid, None)


def _send(process: Process, numbers: Iterable[int]) -> None:
    try:
        handle = os.pidfd_open(process.pid)
    except AttributeError:  # not Linux
        handle = None
    except OSError as error:
        if isinstance(error, ProcessLookupError):
            raise
        handle = None  # an old kernel, or a sandbox that does not know the call
    if handle is None:
        for number in numbers:
            os.kill(process.pid, number)
        return
    try:
        # The pid may belong to another process by now. After this check the handle stays with the right process.
        now = _read(process.pid)
        if now is not None and now.started == process.started:
            for number in numbers:
                signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def _all() -> Mapping[int, Process]:
    try:
        names = os.listdir(_PROC)
    except OSError:
        return {}  # not Linux, or not mounted: then only the command's process group is signalled
    found = (_read(int(name)) for name in names if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def _read(pid: int) -> Process | None:
    try:
        with open(f"{_PROC}/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The program's name stands in parentheses and may contain any byte, also ")".
    fields = text[text.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else Process(pid, int(fields[1]), int(fields[19]))
