"""``holdfast demo`` in a process of its own, with and without a terminal."""

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

from tests.support.processes import Death, started_with
from tests.support.terminal import assert_cursor_is_back, terminal

COMMAND = [sys.executable, "-W", "error", "-m", "holdfast.cli", "demo"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A TMPDIR that the test can search for leftovers, and a mark that identifies the processes of the demo.

    The name of the directory contains characters that are special in a URL, and a byte that is not UTF-8.
    """
    temporary = os.fsdecode(os.fsencode(tmp_path) + b"/a #b?c=d&e%41\xff")
    os.mkdir(temporary)
    return {**os.environ, "TMPDIR": temporary, "DEMO_UNDER_TEST": str(tmp_path)}


def processes(environment: Mapping[str, str]) -> list[int]:
    """Returns every process started with this environment, also reparented ones."""
    return started_with("DEMO_UNDER_TEST", environment["DEMO_UNDER_TEST"])


def assert_nothing_left(environment: Mapping[str, str]) -> None:
    assert os.listdir(environment["TMPDIR"]) == []
    assert processes(environment) == []


def assert_as_promised(line: str) -> None:
    result = json.loads(line)
    assert list(result) == ["unlocked_lost", "holdfast_lost", "stale_write"]
    assert type(result["unlocked_lost"]) is int
    assert result["unlocked_lost"] > 0
    assert result["holdfast_lost"] == 0
    assert result["stale_write"] == "refused"


def test_output_without_a_terminal(environment: dict[str, str]) -> None:
    began = time.monotonic()
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=55)
    assert time.monotonic() - began < 30
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert_as_promised(lines[-1])
    lost = json.loads(lines[-1])["unlocked_lost"]
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout
    assert any(re.search(rf"all 300 updates done, the file says {300 - lost}: {lost} lost", line) for line in lines)
    assert any("the file says 300: 0 lost" in line for line in lines)
    assert any("LockLost" in line for line in lines)
    assert any("StaleToken" in line for line in lines)
    assert_nothing_left(environment)


def test_json_output_is_a_single_line(environment: dict[str, str]) -> None:
    done = subprocess.run([*COMMAND, "--json"], env=environment, capture_output=True, text=True, timeout=55)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    assert_as_promised(done.stdout)
    assert_nothing_left(environment)


def test_output_on_a_terminal(environment: dict[str, str]) -> None:
    began = time.monotonic()
    with terminal(environment, COMMAND) as screen:
        while screen.read():
            pass
        assert screen.process.wait(10) == 0
    assert time.monotonic() - began < 30
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.seen)
    assert_as_promised(re.split(r"[\r\n]+", text.strip())[-1])
    assert "▚" in text  # two holders at the same time
    assert_cursor_is_back(screen.seen)
    assert_nothing_left(environment)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_restores_the_cursor_and_leaves_no_processes_or_files(
    environment: dict[str, str], number: signal.Signals
) -> None:
    with terminal(environment, COMMAND) as screen:
        screen.read_until("updates done 1")
        assert len(processes(environment)) == 5
        screen.process.send_signal(number)  # the workers run in sessions of their own: only the demo gets Ctrl-C
        while screen.read():
            pass
        assert screen.process.wait(10) == 128 + number
    assert "Traceback" not in screen.seen
    assert_cursor_is_back(screen.seen)
    assert_nothing_left(environment)


def test_closed_terminal_leaves_no_processes_or_files(environment: dict[str, str]) -> None:
    with terminal(environment, COMMAND) as screen:
        screen.read_until("updates done 1")
        screen.process.send_signal(signal.SIGSTOP)  # otherwise it might notice first and end with another code
        os.waitpid(screen.process.pid, os.WUNTRACED)
        screen.hang_up()
        screen.process.send_signal(signal.SIGHUP)
        screen.process.send_signal(signal.SIGCONT)
        assert screen.process.wait(10) == 128 + signal.SIGHUP
    assert_nothing_left(environment)


@contextmanager
def frozen(environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Runs the demo up to the point where its holder is frozen."""
    with subprocess.Popen(COMMAND, env=environment, stdout=PIPE, stderr=PIPE, text=True) as demo:
        try:
            assert demo.stdout is not None
            assert any("frozen (SIGSTOP)" in line for line in demo.stdout)
            yield demo
        finally:
            demo.kill()


def test_terminated_demo_leaves_no_processes_or_files(environment: dict[str, str]) -> None:
    with frozen(environment) as demo:
        assert len(processes(environment)) == 3
        demo.terminate()
        assert demo.wait(10) == 128 + signal.SIGTERM
        assert demo.stderr is not None
        assert demo.stderr.read() == ""
        assert_nothing_left(environment)


def test_killed_demo_leaves_no_process_not_even_the_frozen_one(environment: dict[str, str]) -> None:
    with frozen(environment) as demo:
        workers = set(processes(environment)) - {demo.pid}
        deaths = [Death(pid) for pid in workers]
        assert len(deaths) == 2
        demo.kill()
        assert all(death.happened(10) for death in deaths)


def test_missing_rich_is_reported_and_the_demo_prints_plain_lines(environment: dict[str, str]) -> None:
    hide = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'rich' else find(name, *rest)\n"
        "sys.stdout.isatty = lambda: True\n"
        "from holdfast.cli.demo.view import choose\n"
        "print(type(choose(quiet=False)).__name__)\n"
    )
    environment["TERM"] = "xterm"
    done = subprocess.run([sys.executable, "-c", hide], env=environment, capture_output=True, text=True, timeout=30)
    assert done.stdout == "Plain\n"
    assert done.stderr == "holdfast demo: for the live picture: pip install 'holdfast-locks[cli]'\n"
