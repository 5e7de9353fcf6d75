"""The command itself: version, help, errors, exit codes."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

import holdfast
from holdfast.cli import command, main


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "holdfast.cli", *arguments], capture_output=True, text=True, timeout=30
    )


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"holdfast {holdfast.__version__}\n", "")


def test_help_names_the_commands() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "demo" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("demo", "--nonsense")])
def test_wrong_usage_is_two_and_on_stderr(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (command.USAGE, "")
    assert "usage: holdfast" in done.stderr


class Failing:
    SUMMARY = "fails"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--loud", action="store_true")

    def run(self, arguments: argparse.Namespace) -> int:
        assert arguments.loud
        raise self.error


@pytest.mark.parametrize(
    "error, code, said",
    [
        (holdfast.EngineUnavailable("nobody answers"), 1, "holdfast: nobody answers\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_are_one_line_and_a_code(
    error: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(main, "commands", lambda: {"fail": Failing(error)})
    assert main.main(["fail", "--loud"]) == code
    assert capsys.readouterr() == ("", said)


def test_output_that_nobody_reads_any_more_is_no_traceback() -> None:
    script = (
        "import sys; from holdfast.cli import main\n"
        "class Talk:\n"
        "    SUMMARY = 'talks'\n"
        "    configure = staticmethod(lambda parser: None)\n"
        "    run = staticmethod(lambda arguments: print('x' * 200_000) or 0)\n"
        "main.commands = lambda: {'talk': Talk}\n"
        "sys.exit(main.main(['talk']))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(10) == command.FAILED
