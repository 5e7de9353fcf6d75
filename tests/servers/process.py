"""Base class of server processes for tests: start, wait until ready, pause, restart, end, and remove the directory.

A subclass defines the ports, the configuration, the command and the check that the server is ready.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self, TypeVar

from tests.servers.ports import ReservedPorts, free_port
from tests.support.waiting import eventually

# A killed test run cannot clean up: the kernel ends the server when the thread that started it ends.
_SETPRIV: Final = shutil.which("setpriv")
_ENDS_WITH_PARENT: Final = [_SETPRIV, "--pdeathsig", "TERM"] if _SETPRIV else []

# Long: the machine may be busy starting other servers.
_START_DEADLINE: Final = 40.0
_STOP_DEADLINE: Final = 10.0
_ATTEMPTS: Final = 5


class ServerFailed(RuntimeError):
    """The server did not start. The text has the end of its log; its directory is kept."""


class Closing:
    """A context manager that calls ``start`` and ``close``: the base of servers, groups and relays."""

    def start(self) -> Self:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class ServerProcess(Closing):
    """``with SomeServer() as server:``; it runs on a free port of 127.0.0.1, in a directory of its own.

    ``stop``, ``kill`` and ``pause`` leave the port and the directory as they are, for ``restart`` and ``resume``.
    """

    #: Its name in reports of failed tests.
    program: ClassVar[str]

    def __init__(self) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self.directory = Path(tempfile.mkdtemp(prefix=f"holdfast-{self.program.split()[0]}-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        self._reserved = ReservedPorts()

    # ---- life cycle

    def start(self) -> Self:
        """Start on a free port and wait until it answers."""
        self.spawn()
        return self.wait_until_ready()

    def spawn(self) -> None:
        """Start on a free port and do not wait, so that several servers can start in parallel.

        Call it from a thread that outlives the server: a server ends with the thread that started it.
        """
        self._choose_ports()
        self._reserved.reserve(*self._ports())
        self._configure()
        self._launch()

    def wait_until_ready(self) -> Self:
        """After ``spawn``. If another program took the port before the server did, this tries other ports."""
        for _ in range(_ATTEMPTS - 1):
            if self._becomes_ready():
                return self
            self.kill()
            self.spawn()
        if self._becomes_ready():
            return self
        raise ServerFailed(f"no free port found in {_ATTEMPTS} attempts; log kept in {self.directory}\n{self.log()}")

    def respawn(self) -> None:
        """Start again on the same ports with the configuration and data on the disk, and do not wait."""
        self.stop()
        self._launch()

    def restart(self) -> Self:
        """As ``respawn``, and wait until it answers."""
        self.respawn()
        if not self._becomes_ready():
            raise ServerFailed(f"port {self.port} was taken meanwhile\n{self.log()}")
        return self

    def stop(self) -> None:
        """End it with an orderly shutdown (SIGTERM)."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without a shutdown (SIGKILL). Written data remains in the kernel's cache."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open, the kernel still accepts new ones, no request is answered."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)  # on a busy machine a thread may continue to run for a while
        self._paused = True

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self._paused = False

    def close(self) -> None:
        """End it and remove its directory, including data that an orderly shutdown would save."""
        self.kill()
        self._reserved.release()
        shutil.rmtree(self.directory, ignore_errors=True)

    # ---- facts

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def answering(self) -> bool:
        """Running, and not frozen by ``pause``."""
        return self.running and not self._paused

    @property
    def exit_code(self) -> int | None:
        """The exit code if it ended by itself; None while it runs, and after ``stop`` or ``kill``."""
        return None if self._process is None else self._process.poll()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def log(self, lines: int = 40) -> str:
        """The end of its log."""
        try:
            text = (self.directory / "log").read_text("utf-8", "replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    # ---- for subclasses

    def _choose_ports(self) -> None:
        self.port = free_port()

    def _ports(self) -> Iterable[int]:
        """All ports that it listens on."""
        return (self.port,)

    def _configure(self) -> None:
        """Write its configuration, with the ports just chosen."""

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _environment(self) -> Mapping[str, str]:
        """Additional environment variables of the server."""
        return {}

    def _answers(self) -> bool:
        """Whether it is ready; the check must fail for another server on the same port."""
        raise NotImplementedError

    # ---- internals

    def _launch(self) -> None:
        assert not self.running
        with (self.directory / "log").open("wb") as output:
            # In its own session: Ctrl-C in the terminal interrupts the tests only, which then end the server.
            self._process = subprocess.Popen(
                [*_ENDS_WITH_PARENT, *self._command()], cwd=self.directory, env=os.environ | self._environment(),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def _becomes_ready(self) -> bool:
        """Wait until it answers; False if the port was taken."""

        def ended_or_answers() -> bool:
            return self.exit_code is not None or self._answers()

        try:
            eventually(ended_or_answers, _START_DEADLINE, f"{self.program} is ready", failure=ServerFailed)
        except ServerFailed as error:
            self.kill()
            raise ServerFailed(f"{error}\n{self.log()}") from error
        if self.exit_code is None:
            return True
        if "Address already in use" in self.log(200):
            return False
        raise ServerFailed(f"{self.program} ended with {self.exit_code}\n{self.log()}")

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
            if self._paused and number is not signal.SIGKILL:
                process.send_signal(signal.SIGCONT)  # a paused process does not handle SIGTERM
            try:
                process.wait(_STOP_DEADLINE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_STOP_DEADLINE)
        self._paused = False
        self._process = None


AnyServer = TypeVar("AnyServer", bound=ServerProcess)


def start_all(servers: Iterable[AnyServer]) -> None:
    """Start them in parallel, all from this thread, since a server ends with the thread that started it."""
    servers = list(servers)
    for server in servers:
        server.spawn()
    for server in servers:
        server.wait_until_ready()
