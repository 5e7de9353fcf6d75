"""``holdfast run`` on a terminal, under a shell with job control or as the only program of the session."""

from __future__ import annotations

import os
import pty
import select
import shlex
import signal
import termios
import time
from collections.abc import Iterator

import pytest

from tests.cli.run.jobs import COMMAND, TIMEOUT, Jobs
from tests.support.processes import Death, state
from tests.support.waiting import eventually


class Screen:
    """A terminal with a program that leads its session."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            try:
                os.execve(command[0], command, environment)
            finally:
                os._exit(127)
        self._seen = ""

    def read_until(self, text: str) -> str:
        """Reads until ``text`` has appeared and returns what came before it."""
        end = time.monotonic() + TIMEOUT
        while text not in self._seen:
            assert time.monotonic() < end, self._seen
            self._read(1.0)
        before, _, self._seen = self._seen.partition(text)
        return before

    def pid_printed(self) -> int:
        """The pid printed by a command as ``pid N.``"""
        self.read_until("pid ")
        return int(self.read_until("."))

    def _read(self, timeout: float) -> None:
        if select.select([self._terminal], (), (), timeout)[0]:
            try:
                self._seen += os.read(self._terminal, 4096).decode(errors="replace")
            except OSError:  # EIO: no process has it open any more
                pass

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    @property
    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._terminal)[3] & termios.ECHO)

    def wait(self) -> int:
        """Returns the exit code of the program; reads its output meanwhile because a full terminal would block it."""
        end = time.monotonic() + TIMEOUT
        while (ended := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            self._read(0.01)
            assert time.monotonic() < end, self._seen
        return os.waitstatus_to_exitcode(ended[1])

    def close(self) -> None:
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self._terminal)


@pytest.fixture
def shell(jobs: Jobs) -> Iterator[Screen]:
    """An interactive shell in which ``run`` is the command under test."""
    screen = Screen(["/bin/bash", "--norc", "--noprofile", "-i"], jobs.environment | {"PS1": "$ ", "TERM": "dumb"})
    prefix = shlex.join([*COMMAND, "--url", jobs.url])
    screen.type(f"stty -echo; bind 'set enable-bracketed-paste off'; run() {{ {prefix} \"$@\"; }}; echo rea''dy\n")
    screen.read_until("ready")
    yield screen
    screen.close()


def test_command_reads_the_terminal_and_gets_ctrl_c(shell: Screen) -> None:
    shell.type("run x sh -c 'echo up:; exec cat'; echo code $?\n")
    shell.read_until("up:")
    shell.type("hello\n")
    shell.read_until("hello")
    shell.type("\x03")
    shell.read_until("code 130")


def test_ctrl_z_stops_the_job_and_fg_continues_it(shell: Screen) -> None:
    shell.type("run x sh -c 'echo pid $$.; read line; echo got $line'\n")
    command = shell.pid_printed()
    shell.type("\x1a")
    shell.read_until("Stopped")
    assert state(command) == "T"
    shell.type("echo here; fg\n")
    shell.read_until("here")
    eventually(lambda: state(command) == "S", TIMEOUT)
    shell.type("hello\n")
    shell.read_until("got hello")
    shell.type("echo code $?\n")
    shell.read_until("code 0")


def test_job_stopped_for_longer_than_its_lease_is_killed(shell: Screen) -> None:
    shell.type("run --ttl 3 --grace 0 x sh -c 'echo pid $$.; read line; echo got $line'; echo code $?\n")
    death = Death(shell.pid_printed())
    shell.type("\x1a")
    shell.read_until("Stopped")
    death.wait()  # while the job is stopped
    shell.type("fg; echo then $?\n")
    shell.read_until("then 79")


def test_background_job_that_reads_is_stopped_and_fg_continues_it(shell: Screen) -> None:
    shell.type("run x sh -c 'read line; echo got $line' &\n")
    shell.type("wait -n 2>/dev/null; jobs\n")
    shell.read_until("Stopped")
    shell.type("fg\n")
    shell.read_until("read line")
    shell.type("hello\n")
    shell.read_until("got hello")


def test_command_in_a_pipeline_leaves_the_terminal_to_the_reader(shell: Screen) -> None:
    shell.type(
        "run x sh -c 'echo one; sleep 0.2; echo two' | (read a; read line </dev/tty; read b; echo $a $line $b)\n"
    )
    shell.type("typed\n")
    shell.read_until("one typed two")


def test_killed_command_leaves_the_terminal_settings_unchanged(jobs: Jobs) -> None:
    command = [*COMMAND, "--url", jobs.url, "x", "--", "sh", "-c", "stty -echo; echo up.; kill -9 $$"]
    screen = Screen(command, jobs.environment)
    try:
        screen.read_until("up.")
        assert screen.wait() == 137
        assert screen.echoes
    finally:
        screen.close()


def test_only_program_of_a_session_is_not_stopped(jobs: Jobs) -> None:
    """As under ``ssh -t``, where no shell could continue it."""
    script = "echo up.; read line; echo got $line"
    screen = Screen([*COMMAND, "--url", jobs.url, "x", "--", "sh", "-c", script], jobs.environment)
    try:
        screen.read_until("up.")
        screen.type("\x1a")
        screen.type("hello\n")
        screen.read_until("got hello")
        assert screen.wait() == 0
    finally:
        screen.close()
