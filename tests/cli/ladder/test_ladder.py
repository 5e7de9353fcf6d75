"""``holdfast ladder`` in a process of its own, with and without a terminal, servers and libraries."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from holdfast.cli import main
from holdfast.cli.ladder import verdicts
from holdfast.cli.ladder.verdicts import FAULTS
from tests.docs.blocks import run_python
from tests.support.processes import Death, started_with, state
from tests.support.terminal import assert_cursor_is_back, terminal
from tests.support.waiting import eventually

COMMAND = [sys.executable, "-W", "error", "-m", "holdfast.cli", "ladder"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A TMPDIR that the test can search for leftovers, and a mark that identifies the processes of the command."""
    temporary = os.fsdecode(os.fsencode(tmp_path) + b"/a #b?c=d&e%41\xff")
    os.mkdir(temporary)
    return {**os.environ, "TMPDIR": temporary, "DEMO_UNDER_TEST": str(tmp_path)}


def all_processes(environment: Mapping[str, str]) -> set[int]:
    """Includes redis-server, which overwrites its environment but runs in its own directory."""
    found = set(started_with("DEMO_UNDER_TEST", environment["DEMO_UNDER_TEST"]))
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd").startswith(environment["TMPDIR"]):
                found.add(int(process.name))
        except OSError:
            continue  # ended meanwhile, or not ours
    return found


def assert_nothing_left(environment: Mapping[str, str]) -> None:
    assert os.listdir(environment["TMPDIR"]) == []
    assert all_processes(environment) == set()


def run(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], env=environment, capture_output=True, text=True, timeout=55)


@pytest.mark.needs_redis
def test_one_rung_prints_a_text_row_and_leaves_no_processes_or_files(environment: dict[str, str]) -> None:
    began = time.monotonic()
    done = run(environment, "--rung", "1")
    assert time.monotonic() - began < 20
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 SETNX         stuck   stuck   ok        ok        ok       lost 1/2 -\n" in done.stdout
    assert "6 of 6 cells came out as promised." in done.stdout
    assert done.stdout.isascii()
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert_nothing_left(environment)


@pytest.mark.needs_redis
def test_json_output_is_one_line_with_every_run(environment: dict[str, str]) -> None:
    done = run(environment, "--rung", "2", "--fault", "crash-between", "--runs", "3", "--json")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    result = json.loads(done.stdout)
    assert result["as_promised"] is True
    (cell,) = result["cells"]
    assert (cell["rung"], cell["fault"], cell["expected"], cell["missing"]) == (2, "crash-between", "stuck", None)
    assert [run["verdict"] for run in cell["runs"]] == ["stuck"] * 3
    assert all("SIGKILL" in json.dumps(run["timeline"]) for run in cell["runs"])


@pytest.mark.needs_redis
def test_explain_shows_source_timeline_and_next_rung(environment: dict[str, str]) -> None:
    done = run(environment, "--rung", "4", "--fault", "check-then-delete", "--explain")
    assert (done.returncode, done.stderr) == (0, "")
    assert "self.redis.delete(self.name)  # <- delete" in done.stdout
    assert re.search(r"\d s  fault   A is stopped \(SIGSTOP\)", done.stdout)
    assert "B's lock was deleted by A" in done.stdout
    assert "+        self.redis.eval(RELEASE, 1, self.name, self.value)" in done.stdout


@pytest.mark.needs_redis
def test_terminal_output_draws_the_matrix(environment: dict[str, str]) -> None:
    with terminal(environment, [*COMMAND, "--rung", "2"]) as screen:
        while screen.read():
            pass
        assert screen.process.wait(10) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.seen)
    assert "2 SETNX, EXPIRE: crash-between" in text  # the cell in progress
    assert re.search(r"2 SETNX, EXPIRE +stuck +ok +lost 2/3\* +lost 1/3\* +lost 1/2 +lost 1/2 +–", text)
    assert_cursor_is_back(screen.seen)
    assert_nothing_left(environment)


@pytest.mark.needs_redis
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_restores_the_cursor_and_leaves_no_processes_or_files(
    environment: dict[str, str], number: signal.Signals
) -> None:
    with terminal(environment, [*COMMAND, "--rung", "6", "--fault", "slow-holder", "--runs", "20"]) as screen:
        screen.read_until("slow-holder")
        wait_for_processes(environment, 4)  # the command, its spawner, redis-server, at least one client
        screen.process.send_signal(number)
        while screen.read():
            pass
        assert screen.process.wait(10) == 128 + number
    assert "Traceback" not in screen.seen
    assert_cursor_is_back(screen.seen)
    assert_nothing_left(environment)


@contextmanager
def running(environment: Mapping[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([*COMMAND, *arguments], env=environment, stdout=PIPE, stderr=PIPE, text=True) as command:
        try:
            yield command
        finally:
            command.kill()


def wait_for_processes(environment: Mapping[str, str], count: int) -> set[int]:
    def enough() -> set[int]:
        found = all_processes(environment)
        return found if len(found) >= count else set()

    return eventually(enough, 20, f"there are {count} processes")


def wait_for_a_frozen_process(environment: Mapping[str, str]) -> None:
    eventually(lambda: any(state(pid) == "T" for pid in all_processes(environment)), 20, "a process is frozen")


@pytest.mark.needs_redis
def test_killed_command_leaves_no_process_and_no_file(environment: dict[str, str]) -> None:
    with running(environment, "--rung", "5", "--fault", "freeze", "--runs", "50") as ladder:
        others = wait_for_processes(environment, 5) - {ladder.pid}  # spawner, redis-server, A, B
        wait_for_a_frozen_process(environment)
        deaths = [Death(pid) for pid in others if Path(f"/proc/{pid}").exists()]
        assert len(deaths) >= 2
        ladder.kill()
        assert all(death.happened(10) for death in deaths)
    # By the spawner, which had ended its children first.
    eventually(lambda: not os.listdir(environment["TMPDIR"]), 10, "the temporary files are gone")
    assert_nothing_left(environment)


def test_missing_redis_server_runs_the_last_rung_on_sqlite(environment: dict[str, str], tmp_path: Path) -> None:
    environment["PATH"] = str(tmp_path)
    done = run(environment)
    assert (done.returncode, done.stderr) == (0, "")
    needs = "needs redis-server on PATH: apt-get install redis-server\n"
    assert done.stdout.count(f" {needs}") == 7
    assert "8 session       needs ZooKeeper: apt-get install zookeeper\n" in done.stdout
    assert re.search(r"9 fencing token ok +ok +ok +ok +ok +needs... needs...\n", done.stdout)
    assert f"Rung 9 ran on the embedded engine (SQLite); its other faults need {needs[6:]}" in done.stdout
    assert "5 of 5 cells came out as promised." in done.stdout
    assert_nothing_left(environment)


@pytest.mark.parametrize(
    "module, number, remedy",
    [
        ("redis", 3, "redis-py: pip install 'holdfast-locks[redis]'"),
        ("kazoo", 8, "kazoo: pip install 'holdfast-locks[z"),
    ],
)
def test_missing_driver_names_the_package_to_install(module: str, number: int, remedy: str) -> None:
    script = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        f"u.find_spec = lambda name, *rest: None if name == {module!r} else find(name, *rest)\n"
        "from holdfast.cli.main import main\n"
        f"sys.exit(main(['ladder', '--rung', '{number}']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"needs {remedy}" in done.stdout
    assert "0 of 0 cells" in done.stdout


@pytest.mark.needs_redis
@pytest.mark.parametrize("kind", ["ok", "lost"])
def test_unexpected_result_exits_with_1(
    kind: verdicts.Kind, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = dict.fromkeys((fault.name for fault in FAULTS), kind)
    monkeypatch.setattr(verdicts, "EXPECTED", {**verdicts.EXPECTED, 1: tuple(row.values())})
    assert main.main(["ladder", "--rung", "1", "--fault", "crash-holding"]) == 1
    printed = capsys.readouterr().out
    assert f"not as promised: 1 SETNX, crash-holding: expected {kind}, 1 of 1 runs differ" in printed
    assert "stuck!" in printed


def test_full_disk_prints_a_one_line_error(environment: dict[str, str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(COMMAND, env=environment, stdout=full, stderr=PIPE, text=True, timeout=30)
    assert done.stderr == "holdfast: cannot write to stdout: No space left on device\n"
    assert done.returncode == 1
    assert_nothing_left(environment)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--explain",), "--explain needs --rung N"),
        (("--rung", "10"), "invalid choice: 10"),
        (("--fault", "fire"), "invalid choice: 'fire'"),
        (("--runs", "0"), "'0' is not a number from 1 on"),
        (("--url", "redis://localhost"), "unrecognized arguments"),
    ],
)
def test_wrong_usage_exits_with_64_and_a_one_line_error(arguments: tuple[str, ...], message: str) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (64, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.needs_redis
def test_server_that_does_not_start_prints_a_one_line_error(environment: dict[str, str], tmp_path: Path) -> None:
    broken = tmp_path / "redis-server"
    broken.write_text("#!/bin/sh\necho no memory today >&2\nexit 3\n")
    broken.chmod(0o755)
    environment["PATH"] = str(tmp_path)
    done = run(environment, "--rung", "3", "--fault", "freeze")
    assert done.returncode == 1
    assert done.stderr == "holdfast ladder: redis did not start: no memory today\n"
    assert_nothing_left(environment)


@pytest.mark.needs_redis
def test_ladder_example_runs() -> None:
    lines = run_python(["-W", "error", "examples/ladder/climb.py", "1", "4"]).splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"crash-holding +1 SETNX: stuck +-> +2 SETNX, EXPIRE: ok", lines[0])
    assert re.fullmatch(r"check-then-delete +4 own value: lost 1/3\* +-> +5 Lua release: ok", lines[1])
