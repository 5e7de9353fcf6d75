"""``holdfast run`` with the other kinds of locks: several commands at a time, or one that keeps them out."""

from __future__ import annotations

import pytest

import holdfast
from tests.cli.run.jobs import Jobs

pytestmark = pytest.mark.usefixtures("jobs")


def test_shared_runs_are_together_and_keep_exclusive_ones_out(jobs: Jobs, lock_file: str) -> None:
    with holdfast.connect(lock_file) as locks, locks.rwlock("x").read.acquire():
        reader = jobs.run("--shared", "-n", "x", "true")
        writer = jobs.run("--exclusive", "-n", "x", "true")
    assert reader.returncode == 0
    assert writer.returncode == 75
    assert "write lock 'x' is busy; held by host" in writer.stderr


def test_exclusive_run_keeps_shared_ones_out(jobs: Jobs, lock_file: str) -> None:
    with holdfast.connect(lock_file) as locks, locks.rwlock("x").write.acquire():
        assert jobs.run("--shared", "-n", "x", "true").returncode == 75
    assert jobs.run("--exclusive", "-n", "x", "true").returncode == 0


def test_at_most_n_runs_with_a_semaphore(jobs: Jobs, lock_file: str) -> None:
    with holdfast.connect(lock_file) as locks:
        semaphore = locks.semaphore("x", 2)
        with semaphore.acquire():
            assert jobs.run("--semaphore", "2", "-n", "x", "true").returncode == 0
            with semaphore.acquire():
                busy = jobs.run("--semaphore", "2", "-n", "x", "true")
    assert busy.returncode == 75
    assert "semaphore 'x' is busy" in busy.stderr


def test_name_of_another_kind_is_refused_and_both_kinds_are_named(jobs: Jobs, lock_file: str) -> None:
    with holdfast.connect(lock_file) as locks, locks.rwlock("x").read.acquire():
        refused = jobs.run("-n", "x", "true")
    assert refused.returncode == 77
    assert "rwlock" in refused.stderr
    assert "not as a lock" in refused.stderr


def test_command_finds_how_the_lock_is_held(jobs: Jobs) -> None:
    for option, mode in (("--shared", "read"), ("--exclusive", "write"), ("--semaphore=3", "permits")):
        done = jobs.run(option, f"name-{mode}", "--", "sh", "-c", "echo $HOLDFAST_MODE")
        assert (done.returncode, done.stdout) == (0, f"{mode}\n")
    assert jobs.run("x", "--", "sh", "-c", "echo $HOLDFAST_MODE").stdout == "exclusive\n"
