"""kill -9 of each process at each stage: the command never runs without the lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.cli.run.jobs import FOREVER, STUBBORN, TIMEOUT, Jobs
from tests.support.processes import Death, children, state
from tests.support.soak import soak
from tests.support.waiting import eventually

# A typical daemon: forked twice, in a session of its own, ignoring SIGTERM. It prints its pid.
DAEMON = "setsid sh -c 'trap \"\" TERM; echo $$; exec >&-; while :; do sleep 1; done' & "

_FILL = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (2000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
while (new := os.dup(0)) < 1024:
    os.set_inheritable(new, True)
os.execv(sys.argv[1], sys.argv[1:])
"""
#: Executes its arguments with so many open descriptors that each new one is above 1023, the limit of select(2).
MANY_DESCRIPTORS = [sys.executable, "-c", _FILL]


def test_runner_killed_while_waiting_leaves_no_process_and_no_claim(jobs: Jobs, lock_file: str, tmp_path: Path) -> None:
    flag = tmp_path / "ran"
    with holdfast.connect(lock_file) as locks:
        with locks.lock("x").acquire():
            job = jobs.start("--fair", "x", "--", "touch", str(flag))
            eventually(lambda: locks.inspect("x").waiters == 1, TIMEOUT)
            guardian = Death(job.guardian)
            job.process.kill()
            guardian.wait()
        with locks.lock("x", fair=True).acquire(timeout=10):
            assert not flag.exists()


@pytest.mark.parametrize("engine", ["sqlite", "redis"])
def test_killed_runner_ends_the_command_and_its_daemons(
    jobs: Jobs, engine: str, request: pytest.FixtureRequest
) -> None:
    url = jobs.url if engine == "sqlite" else request.getfixturevalue("redis_url")
    job = jobs.start("x", "--", "sh", "-c", DAEMON + STUBBORN, url=url)
    deaths = [Death(job.pid()), Death(job.pid()), Death(job.guardian)]
    with holdfast.connect(url) as locks:
        job.process.kill()
        if engine == "sqlite":
            # The daemons hold the liveness descriptor: the lock is free when the last of them has ended, not earlier.
            with locks.lock("x").acquire(timeout=10):
                assert jobs.processes() == []
        for death in deaths:
            death.wait()
        if engine == "redis":
            assert locks.lock("x").try_acquire() is None, "it lives on until its ttl"


@pytest.mark.parametrize("looks", [0, 1, 4, 16])
def test_runner_killed_at_any_point_of_the_start_leaves_no_command(jobs: Jobs, looks: int) -> None:
    """Kills the runner between the grant and exec: once the guardian has a child, and some polls later."""
    job = jobs.start("x", "--", "sh", "-c", FOREVER)
    guardian = job.guardian
    eventually(lambda: children(guardian), TIMEOUT)
    for _ in range(looks):
        children(guardian)
    job.process.kill()
    jobs.wait_until_none_is_left()


def test_killed_guardian_ends_the_command_and_its_daemons(jobs: Jobs) -> None:
    job = jobs.start("x", "--", "sh", "-c", DAEMON + STUBBORN)
    deaths = [Death(job.pid()), Death(job.pid())]
    os.kill(job.guardian, signal.SIGKILL)
    assert job.wait() == 137
    for death in deaths:
        death.wait(0)  # the runner has waited for them already
    assert "guardian" in job.errors()
    assert jobs.run("--nonblock", "x", "true").returncode == 0


def test_guardian_killed_before_the_grant_starts_no_command(jobs: Jobs, lock_file: str, tmp_path: Path) -> None:
    flag = tmp_path / "ran"
    with holdfast.connect(lock_file) as locks, locks.lock("x").acquire() as lease:
        job = jobs.start("--fair", "x", "--", "touch", str(flag))
        eventually(lambda: locks.inspect("x").waiters == 1, TIMEOUT)
        os.kill(job.guardian, signal.SIGKILL)
        lease.release()
        assert job.wait() == 137
    assert not flag.exists()


def test_killing_runner_and_guardian_together_ends_the_command(jobs: Jobs) -> None:
    job = jobs.start("x", "--", "sh", "-c", STUBBORN)
    death = Death(job.pid())
    guardian = job.guardian
    for pid in (job.process.pid, guardian):
        os.kill(pid, signal.SIGSTOP)  # so that neither can react to the death of the other
    for pid in (job.process.pid, guardian):
        os.kill(pid, signal.SIGKILL)
    death.wait()


def test_signal_to_the_runners_group_does_not_reach_the_guardian(jobs: Jobs) -> None:
    job = jobs.start("x", "--", "sh", "-c", DAEMON + STUBBORN, process_group=0)
    deaths = [Death(job.pid()), Death(job.pid())]
    os.killpg(job.process.pid, signal.SIGKILL)
    for death in deaths:
        death.wait()


def test_runner_adopts_orphans_before_it_forks_the_guardian(jobs: Jobs) -> None:
    """Regression: beside the guardian's own call, the kernel may lose one of both. Then a daemon outlives the lock."""
    script = (
        "import ctypes, os\n"
        "from holdfast.cli.main import main\n"
        "found = []\n"
        "def look():\n"
        "    answer = ctypes.c_int()\n"
        "    ctypes.CDLL(None).prctl(37, ctypes.byref(answer), 0, 0, 0)  # PR_GET_CHILD_SUBREAPER\n"
        "    found.append(answer.value)\n"
        "os.register_at_fork(before=look)\n"
        f"assert main(['run', '--url', {jobs.url!r}, 'x', '--', 'true']) == 0\n"
        "print(found[0])\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=jobs.environment, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_leftover_descendants_get_term_then_kill_before_the_release(jobs: Jobs) -> None:
    job = jobs.start("--grace", "300ms", "x", "--", "sh", "-c", DAEMON + "read line; exit 3", stdin=-1)
    death = Death(job.pid())
    assert job.process.stdin is not None
    job.process.stdin.close()
    with holdfast.connect(jobs.url) as locks, locks.lock("x").acquire(timeout=15):
        death.wait(0)
    assert job.wait() == 3


@pytest.mark.parametrize("runs", [10, soak(80, reason="shows a leak that does not happen in each run")])
def test_many_runs_leave_no_zombie_and_no_descriptor(jobs: Jobs, runs: int) -> None:
    script = (
        "import os, sys\n"
        "from holdfast.cli.main import main\n"
        "def left(): return len(os.listdir('/proc/self/fd'))\n"
        f"arguments = ['run', '--url', {jobs.url!r}, 'x', '--', 'true']\n"
        "assert main(arguments) == 0\n"
        "before = left()\n"
        f"for _ in range({runs}): assert main(arguments) == 0\n"
        "assert left() == before, (before, left())\n"
        "try: os.waitpid(-1, os.WNOHANG)\n"
        "except ChildProcessError: print('clean')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=jobs.environment, capture_output=True, text=True, timeout=55
    )
    assert (done.stdout, done.stderr) == ("clean\n", "")


def test_adopted_orphans_are_reaped_while_the_runner_waits(jobs: Jobs, lock_file: str) -> None:
    """As process 1 of a container the runner adopts every orphan; here it adopts those of its guardian."""
    with holdfast.connect(lock_file) as locks, locks.lock("x").acquire():
        job = jobs.start("--fair", "x", "--", "true")
        eventually(lambda: locks.inspect("x").waiters == 1, TIMEOUT)
        guardian = job.guardian
        os.kill(guardian, signal.SIGKILL)
        eventually(lambda: state(guardian) == "", TIMEOUT)


def test_frozen_guardian_does_not_block_a_runner_with_a_busy_lock(jobs: Jobs, lock_file: str) -> None:
    with holdfast.connect(lock_file) as locks, locks.lock("x").acquire() as lease:
        job = jobs.start("--fair", "--timeout", "3s", "x", "--", "true")
        eventually(lambda: locks.inspect("x").waiters == 1, TIMEOUT)
        os.kill(job.guardian, signal.SIGSTOP)
        assert job.wait() == 75
        assert lease.held


def test_guardian_stopped_after_the_command_does_not_keep_daemons_alive(jobs: Jobs) -> None:
    job = jobs.start("--ttl", "9", "x", "--", "sh", "-c", DAEMON + "echo $$; read line; exit 3", stdin=-1)
    printed = [job.pid(), job.pid()]
    guardian = job.guardian
    (command,) = set(children(guardian)) & set(printed)
    daemon = Death(*(set(printed) - {command}))
    assert job.process.stdin is not None
    job.process.stdin.close()
    eventually(lambda: state(command) == "", TIMEOUT)
    os.kill(guardian, signal.SIGSTOP)  # during the grace of 3 s
    with holdfast.connect(jobs.url) as locks:
        assert locks.break_("x")
    daemon.wait()
    assert job.wait() == 79


#: A supervisor whose guardian reports SIGKILL and then does nothing, like one stopped between the two steps.
STOPPED_AFTER_THE_REPORT = """
import subprocess, sys, threading
from holdfast.cli.run.link import Link
from holdfast.cli.run.signals import Signals
from holdfast.cli.run.supervisor import Supervisor

class Lease:
    ttl, remaining, lost_reason = 3.0, 0.1, None
    def on_lost(self, callback): pass

ours, theirs = Link.pair()
guardian = subprocess.Popen(["sleep", "1000"], pass_fds=[theirs.fileno()])
theirs.send("started", pid=1)
theirs.send("step", step=2)
theirs.close()
with Signals(()) as signals:
    ending = Supervisor(Lease(), ours, guardian.pid, signals, 0.0).run({}, None)
print(ending.stopped, ending.code, ending.guardian_died)
"""


def test_guardian_stopped_between_two_kills_is_killed_by_the_runner() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPED_AFTER_THE_REPORT], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.stdout, done.stderr) == ("True -9 False\n", "")


def test_guardian_with_many_descriptors_kills_every_descendant() -> None:
    script = (
        "import os, subprocess\n"
        "from holdfast.cli.run.guardian import Guardian\n"
        "from holdfast.cli.run.launcher import Program\n"
        "from holdfast.cli.run.link import Link\n"
        "guardian = Guardian(Link.pair()[1], Program('true', ('true',), ()), {}, os.getpgrp())\n"
        "guardian._prepare()\n"
        "subprocess.Popen(['sh', '-c', 'setsid sleep 1000 & sleep 1000'])\n"
        "guardian._kill_all()\n"
        "try: os.waitpid(-1, os.WNOHANG)\n"
        "except ChildProcessError: print('none is left', flush=True)\n"
        "os._exit(0)\n"
    )
    words = [*MANY_DESCRIPTORS, sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert (done.stdout, done.stderr) == ("none is left\n", "")


def test_runner_with_many_descriptors_keeps_the_lock_for_at_least(jobs: Jobs) -> None:
    done = jobs.run("--at-least", "100ms", "x", "--", "true", wrapper=MANY_DESCRIPTORS)
    assert (done.returncode, done.stderr) == (0, "")
