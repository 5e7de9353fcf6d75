"""The command itself: version, help, errors, exit codes."""

from __future__ import annotations

import argparse
import os
import signal
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
        (FileNotFoundError(2, "No such file or directory", "/x"), 1, "holdfast: /x: No such file or directory\n"),
        (OSError(24, "Too many open files"), 1, "holdfast: Too many open files\n"),
        (OSError("odd"), 1, "holdfast: odd\n"),
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


#: The demo writes its first line at once, and must then end its processes.
WRITERS = [("doctor", "memory:"), ("doctor", "memory:", "--json"), ("demo",), ("--help",), ("--version",)]


def shell(redirected: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = f'exec "$@" {redirected}'
    command = ["sh", "-c", script, "sh", sys.executable, "-W", "error", "-m", "holdfast.cli", *arguments]
    # Buffered or not is the user's choice, and decides where the error comes up.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment)


@pytest.mark.parametrize("arguments", WRITERS, ids=" ".join)
def test_a_full_disk_is_one_sentence(arguments: tuple[str, ...]) -> None:
    done = shell(">/dev/full", *arguments)
    assert done.stderr == "holdfast: cannot write to stdout: No space left on device\n"
    assert done.returncode == command.FAILED


@pytest.mark.parametrize("arguments", WRITERS, ids=" ".join)
def test_a_closed_stdout_is_one_sentence(arguments: tuple[str, ...]) -> None:
    done = shell(">&-", *arguments)
    assert done.stderr == "holdfast: stdout is closed: there is nowhere to write to\n"
    assert done.returncode == command.FAILED


@pytest.mark.parametrize("redirected", [">/dev/full 2>/dev/full", ">&- 2>&-"])
def test_without_stderr_too_the_exit_code_is_the_same(redirected: str) -> None:
    assert shell(redirected, "doctor", "memory:").returncode == command.FAILED


def test_with_stderr_closed_an_error_does_not_go_to_stdout() -> None:
    done = shell("2>&-", "doctor", "nonsense:")
    assert (done.returncode, done.stdout) == (command.USAGE, "")


def script_of_signals(*lines: str) -> subprocess.CompletedProcess[str]:
    script = "\n".join(["import os, signal", "from holdfast.cli.stopping import unwinding", "me = os.getpid()", *lines])
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)


def test_signals_after_the_first_do_not_interrupt_the_cleaning_up() -> None:
    done = script_of_signals(
        "with unwinding():",
        "    try:",
        "        os.kill(me, signal.SIGTERM)",
        "        signal.pause()",
        "    finally:",
        "        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):",
        "            os.kill(me, number)",
        "        print('cleaned up')",
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "cleaned up\n", "")


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """nohup, and background jobs of a shell."""
    done = script_of_signals(
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)",
        "with unwinding() as received:",
        "    os.kill(me, signal.SIGHUP)",
        "print(received)",
    )
    assert (done.returncode, done.stdout) == (0, "[]\n")
