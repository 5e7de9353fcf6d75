"""A lock lost while its command runs: the command is dead before the lock can be granted again."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import holdfast
from holdfast.testing.proxy import FaultProxy
from tests.cli.run.jobs import STUBBORN, TIMEOUT, Job, Jobs
from tests.servers.redis import RedisServer
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.processes import Death

#: The kill comes 0.2 s before the lease expires, and must be scheduled by then.
in_time = pytest.mark.alone

# With a descendant in a session of its own. Both print their pids and ignore SIGTERM.
TREE = f"setsid sh -c '{STUBBORN.replace(chr(39), chr(34))}' & sleep 0.1; {STUBBORN}"


class Rival(threading.Thread):
    """Waits for the same lock and, when granted, checks which processes of the former holder are alive."""

    def __init__(self, url: str, deaths: list[Death]) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._deaths = deaths
        self.alive: list[bool] = []

    def run(self) -> None:
        with holdfast.connect(self._url) as locks, locks.lock("x").acquire(timeout=TIMEOUT):
            self.alive = [not death.happened() for death in self._deaths]


@contextmanager
def rival(url: str, deaths: list[Death]) -> Iterator[None]:
    """Starts a rival before the body. At its grant none of the processes may be alive."""
    waiting = Rival(url, deaths)
    waiting.start()
    yield
    waiting.join(TIMEOUT)
    assert waiting.alive == [False] * len(deaths)


def deaths_of(job: Job) -> list[Death]:
    return [Death(job.pid()), Death(job.pid())]


@in_time
def test_failed_renewals_send_term_then_kill_before_the_next_grant(jobs: Jobs, redis_server: RedisServer) -> None:
    with FaultProxy(redis_server.host, redis_server.port) as proxy:
        job = jobs.start("--ttl", "3", "x", "--", "sh", "-c", TREE, url=proxy.url)
        deaths = deaths_of(job)
        with rival(redis_server.url, deaths):
            proxy.black_hole_all()
        assert job.wait() == 79
        assert job.line() == "term"
        assert "(unreachable)" in job.errors()


@in_time
@pytest.mark.parametrize("frozen", ["server", "runner"])
def test_frozen_server_or_runner_does_not_keep_the_command_alive(
    jobs: Jobs, redis_server: RedisServer, frozen: str
) -> None:
    with FaultProxy(redis_server.host, redis_server.port) as proxy:
        job = jobs.start("--ttl", "3", "--grace", "500ms", "x", "--", "sh", "-c", TREE, url=proxy.url)
        deaths = deaths_of(job)
        with rival(redis_server.url, deaths):
            if frozen == "runner":
                job.freeze()
            else:
                proxy.black_hole_all()
        job.signal(signal.SIGCONT)
        assert job.wait() == 79
        assert ("(expired)" if frozen == "runner" else "(unreachable)") in job.errors()


@in_time
def test_frozen_runner_on_the_embedded_engine_loses_its_command(jobs: Jobs) -> None:
    job = jobs.start("--ttl", "3", "--grace", "500ms", "x", "--", "sh", "-c", TREE)
    deaths = deaths_of(job)
    with rival(jobs.url, deaths):
        job.freeze()
    job.signal(signal.SIGCONT)
    assert job.wait() == 79


@in_time
def test_frozen_guardian_and_its_command_are_killed_by_the_runner(jobs: Jobs, redis_server: RedisServer) -> None:
    with FaultProxy(redis_server.host, redis_server.port) as proxy:
        job = jobs.start("--ttl", "3", "x", "--", "sh", "-c", TREE, url=proxy.url)
        deaths = deaths_of(job)
        os.kill(job.guardian, signal.SIGSTOP)
        with rival(redis_server.url, deaths):
            proxy.black_hole_all()
        assert job.wait() == 79


def test_broken_lock_sends_term_immediately_and_kill_a_second_later(jobs: Jobs, lock_file: str) -> None:
    job = jobs.start("x", "--", "sh", "-c", STUBBORN)
    death = Death(job.pid())
    with holdfast.connect(lock_file) as locks:
        broken = time.monotonic()
        assert locks.break_("x")
    assert job.line() == "term"
    assert 0.9 < death.wait() - broken < 5
    assert job.wait() == 79
    error = job.errors()
    assert "(broken)" in error
    assert "died of signal 9" in error


def test_command_ended_by_term_has_its_own_exit_code_in_the_message(jobs: Jobs, lock_file: str) -> None:
    job = jobs.start("x", "--", "sh", "-c", "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done")
    assert job.line() == "up"
    with holdfast.connect(lock_file) as locks:
        assert locks.break_("x")
    assert job.wait() == 79
    assert "the command exited with 0" in job.errors()


def test_lock_stolen_just_before_the_end_of_the_command_exits_with_79(jobs: Jobs, redis_server: RedisServer) -> None:
    """No event reports this loss: the release detects it."""
    with FaultProxy(redis_server.host, redis_server.port) as proxy:
        job = jobs.start("x", "--", "sh", "-c", "echo up; read line; exit 0", url=proxy.url, stdin=subprocess.PIPE)
        assert job.line() == "up"
        redis_server.flush()
        assert job.process.stdin is not None
        job.process.stdin.close()
        assert job.wait() == 79


def test_frozen_runner_on_zookeeper_loses_its_command(jobs: Jobs, zookeeper_server: ZooKeeperServer) -> None:
    job = jobs.start("--ttl", "6", "x", "--", "sh", "-c", STUBBORN, url=zookeeper_server.url)
    deaths = [Death(job.pid())]
    with rival(zookeeper_server.url, deaths):
        job.freeze()
    job.signal(signal.SIGCONT)
    assert job.wait() == 79
