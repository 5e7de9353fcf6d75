"""Signals to the runner: passed on while the command runs, final while the runner waits for the lock."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.run.signals import Signalled, Signals
from tests.cli.run.jobs import COMMAND, FOREVER, TIMEOUT, Jobs
from tests.support.waiting import eventually

PASSED_ON = ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH"]
# Prints the name of each signal; ends at EOF of its stdin. Signals are waited for, not handled: one that comes while
# a handler returns is noticed only after the read that goes on then.
REPORTER = (
    "import os, signal, sys, threading\n"
    "names = {getattr(signal, 'SIG' + name): name for name in sys.argv[1:]}\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, names)\n"
    "threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0))).start()\n"
    "print('up', flush=True)\n"
    "while True:\n"
    "    print(names[signal.sigwait(names)], flush=True)\n"
)


def test_each_signal_is_passed_on_and_the_runner_waits_for_the_command(jobs: Jobs) -> None:
    job = jobs.start("x", "--", sys.executable, "-c", REPORTER, *PASSED_ON, stdin=subprocess.PIPE)
    assert job.line() == "up"
    for name in PASSED_ON:
        for _ in range(2):  # a second Ctrl-C is passed on like the first
            job.signal(getattr(signal, "SIG" + name))
            assert job.line() == name
    assert job.process.stdin is not None
    job.process.stdin.close()
    assert job.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signal_while_waiting_withdraws_the_claim(jobs: Jobs, lock_file: str, number: int) -> None:
    with holdfast.connect(lock_file) as locks:
        with locks.lock("x").acquire():
            job = jobs.start("--fair", "x", "--", "true")
            eventually(lambda: locks.inspect("x").waiters == 1, TIMEOUT)
            job.signal(number)
            assert job.wait() == 128 + number
            assert job.errors() == ""
            assert locks.inspect("x").waiters == 0
        with locks.lock("x").acquire(timeout=0):
            pass


@pytest.mark.parametrize("step", [1, 4, 5, 6, 7, 8, 9, 10, 11])
def test_signal_at_any_point_of_the_start_leaves_no_process_and_no_claim(jobs: Jobs, lock_file: str, step: int) -> None:
    """Covers the whole start, from before the first import to the running command."""
    job = jobs.start("x", "--", "sh", "-c", FOREVER)
    eventually(lambda: _progress(job.process.pid) >= step, TIMEOUT)
    job.signal(signal.SIGTERM)
    assert job.wait() in (128 + signal.SIGTERM, -signal.SIGTERM)  # the latter: before Python installs its handler
    jobs.wait_until_none_is_left()
    with holdfast.connect(lock_file) as locks, locks.lock("x").acquire(timeout=0):
        pass


def _progress(pid: int) -> int:
    """Measures the start in steps: mapped and opened files of the process, and its child processes."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        threads = len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 99
    steps = ["libc", "python", "_socket", "select", "_json", "termios", "_ctypes", "_sqlite3", "libsqlite3"]
    done = sum(step in maps for step in steps) + bool(below) + (threads > 1)
    return done + bool(below and Path(f"/proc/{below[0]}/task/{below[0]}/children").read_text())


def test_ignored_signals_stay_ignored_and_others_have_default_handlers(jobs: Jobs) -> None:
    show = ["cat", "/proc/self/status"]
    plain = jobs.run("x", "--", *show)
    assert _masks(plain.stdout) == {"SigBlk": 0, "SigIgn": 0, "SigCgt": 0}
    shell = f"trap '' HUP USR1; exec {shlex.join([*COMMAND, '--url', jobs.url, 'x', *show])}"
    ignoring = subprocess.run(["sh", "-c", shell], env=jobs.environment, capture_output=True, text=True, timeout=20)
    ignored = 1 << (signal.SIGHUP - 1) | 1 << (signal.SIGUSR1 - 1)
    assert _masks(ignoring.stdout) == {"SigBlk": 0, "SigIgn": ignored, "SigCgt": 0}


def _masks(status: str) -> dict[str, int]:
    """Leaves out the two signals below SIGRTMIN, which belong to the C library: a program cannot change them."""
    ours = ~(1 << 31 | 1 << 32)
    masks = re.findall(r"^(Sig(?:Blk|Ign|Cgt)):\t(\w+)$", status, re.MULTILINE)
    return {name: int(mask, 16) & ours for name, mask in masks}


def test_ignored_signal_does_not_end_a_run(jobs: Jobs) -> None:
    job = jobs.start(
        "x", "--", "sh", "-c", "echo up; read line; exit 4", stdin=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )  # fmt: skip
    assert job.line() == "up"
    job.signal(signal.SIGHUP)
    assert job.process.stdin is not None
    job.process.stdin.write("\n")
    job.process.stdin.flush()
    assert job.wait() == 4


def test_signal_with_a_swallowed_exception_is_raised_at_the_next_check() -> None:
    with Signals(()) as signals:
        with pytest.raises(Signalled):  # Python swallows it like this in a finalizer, where it is only printed
            signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)  # immediately: it does not interrupt the clean-up of the first
        signals.collect()
        with pytest.raises(Signalled, match=str(int(signal.SIGUSR1))):
            signals.check()
