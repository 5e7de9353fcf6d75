"""A program for tests, in a directory of its own: started, frozen, killed, and gone at the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from tests.servers.ports import Kept

# A run that is killed (a time-out, an impatient person) cannot clean up: the kernel then ends the server. Tied to the
# thread that starts it.
_SETPRIV: Final = shutil.which("setpriv")
_WITH_US: Final = [_SETPRIV, "--pdeathsig", "TERM"] if _SETPRIV else []

_STOP_DEADLINE: Final = 10.0


class ServerProcess:
    """``launch`` it, in ``directory``; what it writes is its ``log``. ``close`` leaves no trace."""

    #: What it is called in reports of failed tests.
    program: ClassVar[str]

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"holdfast-{self.program}-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        self._kept = Kept()

    def launch(self, command: Sequence[str]) -> None:
        """Start it and do not wait: several can then come up side by side. From a thread that lives on."""
        assert not self.running
        with (self.directory / "log").open("wb") as output:
            # A session of its own: Ctrl-C in the terminal is for the tests, which then stop the server in good order.
            self._process = subprocess.Popen(
                [*_WITH_US, *command], cwd=self.directory,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def stop(self) -> None:
        """End it in good order (SIGTERM)."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would end the process (SIGKILL); what the kernel has, the kernel keeps."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open, the kernel still accepts new ones, nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)  # on a busy machine a thread may run on for a while
        self._paused = True

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self._paused = False

    def close(self) -> None:
        """End it and remove every trace. What it would save on an orderly end goes anyway."""
        self.kill()
        self._kept.let_go()
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
        """With which it ended by itself; None while it runs, and after ``stop`` or ``kill``."""
        return None if self._process is None else self._process.poll()

    def log(self, lines: int = 40) -> str:
        """The end of its log."""
        try:
            text = (self.directory / "log").read_text("utf-8", "replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
            if self._paused and number is not signal.SIGKILL:
                process.send_signal(signal.SIGCONT)  # a frozen process does not see SIGTERM
            try:
                process.wait(_STOP_DEADLINE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_STOP_DEADLINE)
        self._paused = False
        self._process = None
