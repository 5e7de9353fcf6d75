"""The processes of a run, seen from the ladder: clients and servers, all children of the spawner process."""

from __future__ import annotations

import json
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from holdfast.cli.ladder.worker import Task

#: Seconds. Every step should take milliseconds; a step that takes longer is a failure of the ladder, not a result.
STEP_TIMEOUT: Final = 20.0
_LARGEST: Final = 1 << 16
_SPAWNER: Final = "holdfast.cli.ladder.spawner"


class LadderFailed(Exception):
    """Raised when an experiment could not be carried out: a process or a server failed, or did not respond in time."""


class Misplaced(Exception):
    """Raised when a fault missed its place because the machine was too slow. The runner repeats the experiment."""


class Processes:
    """``with Processes() as processes:``. All processes and files are removed when the block ends."""

    def __init__(self) -> None:
        self._exits = ExitStack()
        self._turn = threading.Lock()  # several runs may share this object

    def __enter__(self) -> Self:
        with self._exits:  # undone if a signal interrupts the start
            name = tempfile.TemporaryDirectory(prefix="holdfast-ladder-", ignore_cleanup_errors=True)
            self.directory = Path(self._exits.enter_context(name))
            self._connection, theirs = socket.socketpair()
            self._exits.enter_context(self._connection)
            with theirs, (self.directory / "workers.log").open("wb") as log:
                spawner = subprocess.Popen(
                    # -P: a file in the current directory must not shadow a module.
                    [sys.executable, "-P", "-m", _SPAWNER, str(self.directory), str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    # Ctrl-C reaches only the ladder, which then ends its processes, frozen ones too.
                    start_new_session=True,
                )
            self._exits.callback(spawner.wait)
            self._exits.callback(self._connection.close)
            self._exits = self._exits.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exits.close()

    def worker(self, name: str, task: Task, note: Callable[[float, str, dict[str, Any]], None]) -> Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            pid = self._request({"worker": task.encode()}, theirs.fileno())
        return Worker(self, name, pid, ours, note)

    def server(self, argv: Sequence[str], log: Path) -> int:
        """Start a program. Returns its pid."""
        pid: int = self._request({"server": list(argv), "log": str(log)})
        return pid

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a child, and wait until SIGSTOP or SIGKILL has had its effect."""
        self._request({"signal": int(number), "pid": pid})

    def exit_code(self, pid: int) -> int | None:
        """None while it runs."""
        code: int | None = self._request({"poll": pid})
        return code

    def log(self) -> str:
        """The last line that a worker, or the spawner, wrote to stderr."""
        log = self.directory / "workers.log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return lines[-1] if lines else "no reason was given"

    def at_exit(self, callback: Callable[[], None]) -> None:
        self._exits.callback(callback)

    def _request(self, request: dict[str, Any], *descriptors: int) -> Any:
        with self._turn:
            try:
                socket.send_fds(self._connection, [json.dumps(request).encode()], descriptors)
                reply = b""
                while not reply.endswith(b"\n"):
                    chunk = self._connection.recv(_LARGEST)
                    if not chunk:
                        raise ConnectionResetError
                    reply += chunk
            except OSError:
                raise LadderFailed(f"the spawner process ended: {self.log()}") from None
            except BaseException:
                # Interrupted by a signal: the reply is still to come, and the next request would read it as its own.
                self._connection.close()
                raise
        return json.loads(reply)


class Worker:
    """One client process. ``reach`` waits for a step. At a step where the client stops, it waits for ``go``."""

    def __init__(
        self,
        processes: Processes,
        name: str,
        pid: int,
        connection: socket.socket,
        note: Callable[[float, str, dict[str, Any]], None],
    ) -> None:
        self.name = name
        self.pid = pid
        self.steps: dict[str, dict[str, Any]] = {}
        self._processes = processes
        self._connection = connection
        self._note = note
        self._unread = b""

    @property
    def wrote(self) -> bool:
        return "wrote" in self.steps

    def go(self) -> None:
        try:
            self._connection.sendall(b"go\n")
        except ConnectionError:
            raise self._failure() from None

    def reaches(self, *steps: str, within: float) -> bool:
        """Whether the client reaches one of these steps within ``within`` seconds, or has reached it already."""
        deadline = time.monotonic() + within
        while not self.steps.keys() & set(steps):
            if not self._read(max(0.0, deadline - time.monotonic())):
                return False
        return True

    def reach(self, *steps: str) -> None:
        if not self.reaches(*steps, within=STEP_TIMEOUT):
            raise LadderFailed(f"client {self.name} did not reach {' or '.join(steps)} within {STEP_TIMEOUT:g} s")

    def finish(self) -> None:
        """Wait until the update is over: written or refused, and the lock released, or found lost."""
        self.reach("released", "lost")

    def freeze(self) -> None:
        self._processes.signal(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        self._processes.signal(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._processes.signal(self.pid, signal.SIGKILL)

    def end(self) -> None:
        try:
            self.kill()
        except LadderFailed:
            pass  # the spawner has ended, or is ending, and kills its children
        finally:
            self._connection.close()

    def _read(self, seconds: float) -> bool:
        """Read reported steps; False if none arrived in time."""
        if not select.select([self._connection], [], [], seconds)[0]:
            return False
        chunk = self._connection.recv(_LARGEST)
        if not chunk:
            raise self._failure()
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        for line in lines:
            facts = json.loads(line)
            step, moment = facts.pop("step"), facts.pop("time")
            self.steps[step] = facts
            self._note(moment, step, facts)
        if "unavailable" in self.steps:
            raise Misplaced
        return True

    def _failure(self) -> LadderFailed:
        return LadderFailed(f"client {self.name} ended too early: {self._processes.log()}")
