"""kill -9 of each process at each stage: the command never runs without the lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.cli.run.jobs import FOREVER, PATIENCE, STUBBORN, Jobs
from tests.support.processes import Death, children, state
from tests.support.soak import soak
from tests.support.waiting import eventually

# A daemon as they come: forked twice, in a session of its own, deaf to SIGTERM. It prints its pid.
DAEMON = "setsid sh -c 'trap \"\" TERM; echo $$; exec >&-; while :; do sleep 1; done' & "

_FILL = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (2000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
while (new := os.dup(0)) < 1024:
    os.set_inheritable(new, True)
os.execv(sys.argv[1], sys.argv[1:])
"""
#: Executes its arguments with so many descriptors that each new one is above 1023: select(2) takes none of these.
MANY_DESCRIPTORS = [sys.executable, "-c", _FILL]


def test_runner_killed_while_it_waits_leaves_nothing(jobs: Jobs, lock_file: str, tmp_path: Path) -> None:
    flag = tmp_path / "ran"
    with holdfast.connect(lock_file) as locks:
        with locks.lock("x").acquire():
            job = jobs.start("--fair", "x", "--", "touch", str(flag))
            eventually(lambda: locks.inspect("x").waiters == 1, PATIENCE)
            guardian = Death(job.guardian)
            job.process.kill()
            guardian.wait()
        with locks.lock("x", fair=True).acquire(timeout=10):
            assert not flag.exists()


@pytest.mark.parametrize("engine", ["sqlite", "redis"])
def test_runner_killed_kills_the_command_and_its_daemons(
    jobs: Jobs, engine: str, request: pytest.FixtureRequest
) -> None:
    url = jobs.url if engine == "sqlite" else request.getfixturevalue("redis_url")
    job = jobs.start("x", "--", "sh", "-c", DAEMON + STUBBORN, url=url)
    deaths = [Death(job.pid()), Death(job.pid()), Death(job.guardian)]
    with holdfast.connect(url) as locks:
        job.process.kill()
        if engine == "sqlite":
            # Free as soon as the last of them has ended, and not before: they have its liveness descriptor.
            with locks.lock("x").acquire(timeout=10):
                assert jobs.processes() == []
        for death in deaths:
            death.wait()
        if engine == "redis":
            assert locks.lock("x").try_acquire() is None, "it lives on until its ttl"


@pytest.mark.parametrize("looks", [0, 1, 4, 16])
def test_runner_killed_in_any_instant_of_the_start_leaves_no_command(jobs: Jobs, looks: int) -> None:
    """Between the grant and exec: as soon as the guardian has a child, and some looks later."""
    job = jobs.start("x", "--", "sh", "-c", FOREVER)
    guardian = job.guardian
    eventually(lambda: children(guardian), PATIENCE)
    for _ in range(looks):
        children(guardian)
    job.process.kill()
    jobs.wait_until_none_is_left()


def test_guardian_killed_kills_the_command_and_its_daemons(jobs: Jobs) -> None:
    job = jobs.start("x", "--", "sh", "-c", DAEMON + STUBBORN)
    deaths = [Death(job.pid()), Death(job.pid())]
    os.kill(job.guardian, signal.SIGKILL)
    assert job.wait() == 137
    for death in deaths:
        death.wait(0)  # the runner has waited for them
    assert "guardian" in job.errors()
    assert jobs.run("--nonblock", "x", "true").returncode == 0


def test_guardian_killed_before_the_grant_starts_no_command(jobs: Jobs, lock_file: str, tmp_path: Path) -> None:
    flag = tmp_path / "ran"
    with holdfast.connect(lock_file) as locks, locks.lock("x").acquire() as lease:
        job = jobs.start("--fair", "x", "--", "touch", str(flag))
        eventually(lambda: locks.inspect("x").waiters == 1, PATIENCE)
        os.kill(job.guardian, signal.SIGKILL)
        lease.release()
        assert job.wait() == 137
    assert not flag.exists()


def test_both_killed_at_once_kills_the_command(jobs: Jobs) -> None:
    job = jobs.start("x", "--", "sh", "-c", STUBBORN)
    death = Death(job.pid())
    guardian = job.guardian
    for pid in (job.process.pid, guardian):
        os.kill(pid, signal.SIGSTOP)  # so that neither can act on the other's death
    for pid in (job.process.pid, guardian):
        os.kill(pid, signal.SIGKILL)
    death.wait()


def test_a_signal_to_the_runners_group_does_not_reach_the_guardian(jobs: Jobs) -> None:
    job = jobs.start("x", "--", "sh", "-c", DAEMON + STUBBORN, process_group=0)
    deaths = [Death(job.pid()), Death(job.pid())]
    os.killpg(job.process.pid, signal.SIGKILL)
    for death in deaths:
        death.wait()


def test_descendants_that_the_command_leaves_get_term_then_kill_before_the_release(jobs: Jobs) -> None:
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


def test_orphans_that_the_runner_adopts_are_reaped_while_it_waits(jobs: Jobs, lock_file: str) -> None:
    """As process 1 of a container it becomes the parent of every orphan there; here, of its guardian's."""
    with holdfast.connect(lock_file) as locks, locks.lock("x").acquire():
        job = jobs.start("--fair", "x", "--", "true")
        eventually(lambda: locks.inspect("x").waiters == 1, PATIENCE)
        guardian = job.guardian
        os.kill(guardian, signal.SIGKILL)
        eventually(lambda: state(guardian) == "", PATIENCE)


def test_a_frozen_guardian_does_not_keep_a_busy_runner(jobs: Jobs, lock_file: str) -> None:
    with holdfast.connect(lock_file) as locks, locks.lock("x").acquire() as lease:
        job = jobs.start("--fair", "--timeout", "1s", "x", "--", "true")
        eventually(lambda: locks.inspect("x").waiters == 1, PATIENCE)
        os.kill(job.guardian, signal.SIGSTOP)
        assert job.wait() == 75
        assert lease.held


def test_a_guardian_that_is_stopped_after_the_end_of_the_command_does_not_save_its_daemons(jobs: Jobs) -> None:
    job = jobs.start("--ttl", "9", "x", "--", "sh", "-c", DAEMON + "echo $$; read line; exit 3", stdin=-1)
    printed = [job.pid(), job.pid()]
    guardian = job.guardian
    (command,) = set(children(guardian)) & set(printed)
    daemon = Death(*(set(printed) - {command}))
    assert job.process.stdin is not None
    job.process.stdin.close()
    eventually(lambda: state(command) == "", PATIENCE)
    os.kill(guardian, signal.SIGSTOP)  # during the grace of 3 s
    with holdfast.connect(jobs.url) as locks:
        assert locks.break_("x")
    daemon.wait()
    assert job.wait() == 79


#: A supervisor whose guardian reports SIGKILL and then does nothing, as one that is stopped between the two does.
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


def test_a_guardian_that_is_stopped_between_two_kills_is_killed_by_the_runner() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPED_AFTER_THE_REPORT], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.stdout, done.stderr) == ("True -9 False\n", "")


def test_a_guardian_with_many_descriptors_kills_until_no_descendant_is_left() -> None:
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


def test_a_runner_with_many_descriptors_keeps_the_lock_for_at_least_as_long_as_it_should(jobs: Jobs) -> None:
    done = jobs.run("--at-least", "100ms", "x", "--", "true", wrapper=MANY_DESCRIPTORS)
    assert (done.returncode, done.stderr) == (0, "")
