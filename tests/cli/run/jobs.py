"""Starts ``holdfast run`` and inspects its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from subprocess import PIPE
from typing import Any, Final

from tests.support.processes import children, started_with
from tests.support.waiting import eventually

TIMEOUT: Final = 20.0
COMMAND: Final = [sys.executable, "-W", "error", "-m", "holdfast.cli", "run"]
#: A command that prints its pid and runs until it is killed.
FOREVER: Final = "echo $$; while :; do sleep 1; done"
STUBBORN: Final = "trap 'echo term' TERM; echo $$; while :; do sleep 0.02; done"


class Job:
    """One run. Its stdout is read line by line; ``pids`` are those that its command has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> str:
        """The next line that the command prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"ended with {self.process.wait(TIMEOUT)}: {self.errors()}"
        return line.rstrip("\n")

    def pid(self) -> int:
        return int(self.line())

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(TIMEOUT)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def freeze(self) -> None:
        """Sends SIGSTOP and returns when the process has stopped."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    @property
    def guardian(self) -> int:
        """The only child of the runner."""
        (pid,) = eventually(lambda: children(self.process.pid), TIMEOUT, "the guardian runs")
        return pid


class Jobs:
    """``jobs.start("name", "--", "cmd")``; ``jobs.run(...)`` waits for the end."""

    def __init__(self, url: str, mark: str) -> None:
        self.url = url
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self.environment["RUN_UNDER_TEST"] = mark
        self._mark = mark
        self._jobs: list[Job] = []

    def start(self, *arguments: str, url: str | None = None, wrapper: Sequence[str] = (), **settings: Any) -> Job:
        """``wrapper`` is a command that executes the run."""
        command = [*wrapper, *COMMAND, "--url", url or self.url, *arguments]
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": PIPE, "stderr": PIPE, "text": True}
        job = Job(subprocess.Popen(command, **options | {"env": self.environment} | settings))
        self._jobs.append(job)
        return job

    def run(self, *arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
        job = self.start(*arguments, **settings)
        out, err = job.process.communicate(timeout=TIMEOUT)
        return subprocess.CompletedProcess(arguments, job.process.returncode, out, err)

    def processes(self) -> list[int]:
        """Every process of these runs except zombies."""
        return started_with("RUN_UNDER_TEST", self._mark)

    def wait_until_none_is_left(self) -> None:
        eventually(lambda: not self.processes(), TIMEOUT, "no process of the run is left")

    def close(self) -> None:
        for job in self._jobs:
            if job.process.poll() is None:
                job.process.kill()
            job.process.wait()
            for stream in (job.process.stdin, job.process.stdout, job.process.stderr):
                if stream is not None:
                    stream.close()
        left = self.processes()
        end = time.monotonic() + TIMEOUT
        while left and time.monotonic() < end:
            left = self.processes()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, "processes outlived their run"
