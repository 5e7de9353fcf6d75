"""Each exit code of ``holdfast run`` with its cause, and the line on stderr."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.main import main
from holdfast.testing.proxy import FaultProxy
from tests.cli.run.jobs import COMMAND, FOREVER, TIMEOUT, Jobs
from tests.support.processes import state
from tests.support.waiting import eventually


@pytest.mark.parametrize(
    "arguments, code",
    [
        (("x", "--", "true"), 0),
        (("x", "false"), 1),
        (("x", "--", "sh", "-c", "exit 75"), 75),
        (("x", "sh", "-c", "exit 9", "--timeout"), 9),  # an option that belongs to the command
        (("-c", "exit 7", "x"), 7),
        (("x", "-c", "exit 8"), 8),
        (("--", "x", "true"), 0),
        (("x", "--", "sh", "-c", "kill -9 $$"), 137),
        (("x", "--", "sh", "-c", "kill -TERM $$"), 143),
    ],
)
def test_run_exits_with_the_code_of_the_command(jobs: Jobs, arguments: tuple[str, ...], code: int) -> None:
    done = jobs.run(*arguments)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize(
    "arguments, hint",
    [
        ((), "NAME is missing"),
        (("x",), "CMD is missing"),
        (("x", "--"), "CMD is missing"),
        (("x", "--ttl", "5", "true"), "options of holdfast go before NAME"),
        (("--bogus", "x", "true"), "unrecognized arguments: --bogus"),
        (("--time", "1", "x", "true"), "unrecognized arguments: --time"),
        (("--nonblock", "--timeout", "3", "x", "true"), "not allowed with"),
        (("--timeout", "soon", "x", "true"), "--timeout is not a duration"),
        (("--max-hold", "0", "x", "true"), "too short to stop a command in time: give 1s"),
        (("--max-hold", "900ms", "x", "true"), "too short to stop a command in time: give 1s"),
        (("--at-least", "5", "--max-hold", "4", "x", "true"), "--at-least is longer"),
        (("-E", "256", "x", "true"), "from 0 to 255"),
        (("--report", "9999", "x", "true"), "--report 9999"),
        (("--report", "out", "x", "true"), "--report is not a number"),
        (("--shared", "--semaphore", "3", "x", "true"), "not allowed with argument --shared"),
        (("--shared", "--exclusive", "x", "true"), "not allowed with argument --shared"),
        (("--semaphore", "0", "x", "true"), "would never run CMD"),
        (("--semaphore", "many", "x", "true"), "--semaphore is not a number"),
        (("-c", "true", "x", "true"), "leave one of them out"),
    ],
)
def test_wrong_command_line_exits_with_64(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], hint: str
) -> None:
    try:
        code = main(["run", *arguments])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else -1
    out, err = capsys.readouterr()
    assert (code, out) == (64, "")
    assert hint in err


@pytest.mark.parametrize(
    "arguments, hint",
    [
        (("--ttl", "2s", "x", "true"), "--ttl 3s or more"),
        (("--grace", "11s", "x", "true"), "a third of the ttl"),
        (("", "true"), "may not be empty"),
    ],
)
def test_wrong_lock_settings_exit_with_64(jobs: Jobs, arguments: tuple[str, ...], hint: str) -> None:
    done = jobs.run(*arguments)
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert hint in done.stderr


@pytest.mark.parametrize("url", ["bogus://x", "memory:", "redis://localhost/0?ttll=5"])
def test_wrong_url_exits_with_78(jobs: Jobs, url: str) -> None:
    done = jobs.run("x", "true", url=url)
    assert (done.returncode, done.stderr.count("\n")) == (78, 1)


def test_unreachable_engine_exits_with_69_and_refusing_engine_with_77(jobs: Jobs, tmp_path: Path) -> None:
    flag = tmp_path / "ran"
    away = jobs.run("x", "touch", str(flag), url="redis://127.0.0.1:1?unavailable_after=200ms")
    assert (away.returncode, away.stderr.count("\n")) == (69, 1)
    directory = tmp_path / "shared"
    directory.mkdir()
    os.chmod(directory, stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)
    refused = jobs.run("x", "touch", str(flag), url=f"sqlite://{directory}/locks.db")
    assert (refused.returncode, refused.stderr.count("\n")) == (77, 1)
    assert not flag.exists()


def test_debug_shows_the_traceback_without_the_password(jobs: Jobs) -> None:
    url = "redis://joe:s3cr3t@127.0.0.1:1?unavailable_after=200ms"
    away = jobs.run("--debug", "x", "true", url=url)
    assert away.returncode == 69
    assert "Traceback" in away.stderr
    assert "s3cr3t" not in away.stderr
    wrong = jobs.run("--debug", "x", "true", url=url + "&ttll=5")
    assert wrong.returncode == 78
    assert "Traceback" in wrong.stderr
    assert "s3cr3t" not in wrong.stderr


def test_busy_lock_exits_with_75_or_the_given_code_and_names_the_holder(jobs: Jobs, lock_file: str) -> None:
    with holdfast.connect(lock_file) as locks, locks.lock("x").acquire():
        once = jobs.run("--nonblock", "x", "true")
        cron = jobs.run("-E", "0", "--timeout", "500ms", "x", "true")  # long enough for an answer
    assert (once.returncode, cron.returncode) == (75, 0)
    assert re.search(rf"lock 'x' is busy; held by host \S+, pid {os.getpid()}, program .+, since 2\d\d\d-", once.stderr)
    assert once.stderr.count("\n") == 1
    assert "stayed busy for 0.5 s" in cron.stderr


def test_command_is_looked_up_before_the_lock_is_acquired(jobs: Jobs, lock_file: str, tmp_path: Path) -> None:
    with holdfast.connect(lock_file) as locks, locks.lock("x").acquire():
        assert jobs.run("x", "--", "no-such-command").returncode == 127
        assert jobs.run("x", "--", str(tmp_path / "nothing")).returncode == 127
        assert jobs.run("x", "--", "").returncode == 127
        assert jobs.run("x", "--", str(tmp_path)).returncode == 126


def test_failed_exec_after_the_grant_exits_with_126_or_127_and_releases(jobs: Jobs, tmp_path: Path) -> None:
    script = tmp_path / "script"
    for text, code in (("#!/no/such/interpreter\n", 127), ("neither binary nor script\n", 126)):
        script.write_text(text)
        script.chmod(0o755)
        done = jobs.run("x", "--", str(script))
        assert (done.returncode, done.stderr.count("\n")) == (code, 1)
        assert "the lock was released" in done.stderr
        assert ("#!/bin/sh" in done.stderr) == (code == 126)  # the advice
        assert jobs.run("--nonblock", "x", "true").returncode == 0


def test_nested_run_of_the_same_name_exits_with_64_and_of_another_name_works(jobs: Jobs) -> None:
    inner = [*COMMAND, "--url", jobs.url]
    refused = jobs.run("x", "--", *inner, "y", "--", *inner, "x", "true")
    assert refused.returncode == 64
    assert "HOLDFAST_HELD" in refused.stderr
    assert jobs.run("x", "--", *inner, "y", "true").returncode == 0


def test_failed_release_warns_and_keeps_the_exit_code_of_the_command(jobs: Jobs, redis_url: str) -> None:
    host, _, port = redis_url.removeprefix("redis://").partition("/")[0].partition(":")
    with FaultProxy(host, int(port)) as proxy:
        job = jobs.start("--ttl", "3", "x", "--", "sh", "-c", "echo up; read line; exit 5", url=proxy.url, stdin=-1)
        assert job.line() == "up"
        proxy.black_hole_all()
        assert job.process.stdin is not None
        job.process.stdin.close()
        assert job.wait() == 5
        assert "the lock may not be released" in job.errors()


def test_max_hold_stops_the_command_in_time_and_exits_with_79(jobs: Jobs) -> None:
    done = jobs.run("--max-hold", "3s", "--grace", "2s", "x", "--", "sh", "-c", FOREVER)
    assert done.returncode == 79
    assert "(max_hold)" in done.stderr
    assert "died of signal 15" in done.stderr


def test_at_least_keeps_the_lock_after_the_command_until_a_signal(jobs: Jobs) -> None:
    job = jobs.start("--at-least", "1h", "x", "--", "sh", "-c", "echo $$; exit 6")
    command = job.pid()
    eventually(lambda: state(command) == "" and not [p for p in jobs.processes() if p != job.process.pid], TIMEOUT)
    assert jobs.run("--nonblock", "x", "true").returncode == 75
    job.signal(15)
    assert job.wait() == 6
    assert jobs.run("--nonblock", "x", "true").returncode == 0
