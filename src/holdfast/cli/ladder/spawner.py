"""The parent of all workers and servers of a run: a small process without threads.

It forks workers within milliseconds, since it has imported what they need, and it can wait until a child has stopped or
ended, which only a parent can do. When the ladder ends, even by SIGKILL, the socket to it is closed: then the spawner
kills every child, frozen ones too, and removes the directory of the run.

Requests and replies are lines of JSON, one at a time: ``{"worker": task}`` (with the worker's socket attached),
``{"server": argv, "log": path}``, ``{"signal": number, "pid": pid}``, ``{"poll": pid}``.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import socket
import sys
import traceback
from typing import Any, Final, NoReturn

from holdfast.cli.demo.worker import die_with_parent
from holdfast.cli.ladder import worker
from holdfast.cli.ladder.verdicts import RUNGS

_LARGEST: Final = 1 << 16
_FAILED: Final = 70
#: Imported by ``holdfast.connect`` and the first acquire, on demand.
_ON_DEMAND: Final = (
    "holdfast.client",
    "holdfast._core.core",
    "holdfast.engines.registry",
    *(f"holdfast.engines.{name}.engine" for name in ("redis", "redis.redlock", "sqlite")),
)


class Spawner:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._ended: dict[int, int | None] = {}  #: exit codes by pid; None: still running

    def serve(self) -> None:
        """Handle requests until the ladder closes its end of the socket."""
        while True:
            message, descriptors, _, _ = socket.recv_fds(self._connection, _LARGEST, 1)
            if not message:
                return
            reply = self._handle(json.loads(message), descriptors)
            self._connection.sendall(json.dumps(reply).encode() + b"\n")

    def kill_all(self) -> None:
        for pid in self._ended:
            self._signal(pid, signal.SIGKILL)

    def _handle(self, request: dict[str, Any], descriptors: list[int]) -> int | None:
        if "worker" in request:
            return self._fork_worker(request["worker"], descriptors[0])
        if "server" in request:
            return self._fork_server(request["server"], request["log"])
        if "signal" in request:
            self._signal(request["pid"], request["signal"])
        return self._poll(request.get("poll", 0))

    def _fork_worker(self, task: dict[str, Any], descriptor: int) -> int:
        pid = os.fork()
        if pid == 0:
            self._become_worker(task, descriptor)
        os.close(descriptor)
        self._ended[pid] = None
        return pid

    def _become_worker(self, task: dict[str, Any], descriptor: int) -> NoReturn:
        code = _FAILED
        try:
            die_with_parent()
            self._connection.close()
            worker.run(worker.Task.decode(task), socket.socket(fileno=descriptor))
            code = 0
        except SystemExit:
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)  # skips the spawner's own exit, which kills all children

    def _fork_server(self, argv: list[str], log: str) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                die_with_parent()
                output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.dup2(output, 1)
                os.dup2(output, 2)
                os.chdir(os.path.dirname(log))
                os.execv(argv[0], argv)
            finally:
                os._exit(_FAILED)
        self._ended[pid] = None
        return pid

    def _signal(self, pid: int, number: int) -> None:
        """Send a signal, and wait until SIGSTOP or SIGKILL has had its effect."""
        if self._poll(pid) is not None:
            return
        os.kill(pid, number)
        if number == signal.SIGSTOP:
            self._wait(pid, os.WUNTRACED)
        elif number == signal.SIGKILL:
            self._wait(pid, 0)

    def _poll(self, pid: int) -> int | None:
        if pid and self._ended[pid] is None:
            self._wait(pid, os.WNOHANG)
        return self._ended.get(pid)

    def _wait(self, pid: int, options: int) -> None:
        found, status = os.waitpid(pid, options)
        if found and not os.WIFSTOPPED(status):
            self._ended[pid] = os.waitstatus_to_exitcode(status)


def _preload() -> None:
    """Import what workers need: a fork then takes milliseconds. A rung whose library is missing is not run."""
    for module in (*(f"holdfast.cli.ladder.rungs.{rung.module}" for rung in RUNGS), *_ON_DEMAND):
        try:
            importlib.import_module(module)
        except ImportError:
            continue


def main(directory: str, descriptor: str) -> None:
    connection = socket.socket(fileno=int(descriptor))
    connection.set_inheritable(False)  # a server must not keep it open
    spawner = Spawner(connection)
    try:
        _preload()
        spawner.serve()
    finally:
        spawner.kill_all()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
