"""The command itself: version, help, errors, exit codes."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import sys

import pytest

import holdfast
from holdfast.cli import exit_codes, main


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
def test_wrong_usage_exits_with_64_and_prints_to_stderr(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (64, "")
    assert "usage: holdfast" in done.stderr


class Failing:
    summary = "fails"
    reports = False

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def load(self) -> Failing:
        return self

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--loud", action="store_true")

    def run(self, arguments: argparse.Namespace) -> int:
        assert arguments.loud
        raise self.error


@pytest.mark.parametrize(
    "error, code, message",
    [
        (holdfast.EngineUnavailable("no answer"), 69, "holdfast: no answer\n"),
        (holdfast.OutcomeUnknown("no answer", operation="break_"), 69, "holdfast: no answer\n"),
        (holdfast.EngineRefused("no right"), 77, "holdfast: no right\n"),
        (holdfast.InvalidName("wrong name"), 64, "holdfast: wrong name\n"),
        (holdfast.UsageError("wrong"), 64, "holdfast: wrong\n"),
        (exit_codes.SettingsError("wrong URL"), 78, "holdfast: wrong URL\n"),
        (holdfast.LockError("a\x1b[31m\nb\u202e"), 1, "holdfast: a\\x1b[31m\\nb\\u202e\n"),
        (ZeroDivisionError("x"), 70, "holdfast: internal error: ZeroDivisionError: x; --debug shows where\n"),
        (RecursionError(), 70, "holdfast: internal error: RecursionError; --debug shows where\n"),
        (KeyboardInterrupt(), 130, ""),
        (FileNotFoundError(2, "No such file or directory", "/x"), 1, "holdfast: /x: No such file or directory\n"),
        (OSError(24, "Too many open files"), 1, "holdfast: Too many open files\n"),
        (OSError("odd"), 1, "holdfast: odd\n"),
    ],
)
def test_errors_print_one_line_and_set_the_exit_code(
    error: BaseException,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(main, "commands", lambda: {"fail": Failing(error)})
    assert main.main(["fail", "--loud"]) == code
    assert capsys.readouterr() == ("", message)


@pytest.mark.parametrize("arguments", [["--debug", "fail", "--loud"], ["fail", "--loud", "--debug"]])
def test_debug_shows_the_traceback_without_escapes_and_keeps_the_exit_code(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "commands", lambda: {"fail": Failing(holdfast.EngineRefused("no \x1b[31m right"))})
    assert main.main(arguments) == 77
    message = capsys.readouterr().err
    assert message.startswith("Traceback (most recent call last):\n")
    assert message.endswith("\nholdfast: no \\x1b[31m right\n")
    assert "\x1b" not in message


def test_arguments_are_repeated_without_escapes() -> None:
    done = run("ls", "a", "\x1b]0;title\x07")
    assert done.returncode == 64
    assert done.stderr.endswith("holdfast ls: unrecognized arguments: \\x1b]0;title\\x07\n")


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (
            ["run", "--timout", "5", "job", "--", "true"],
            "holdfast run: unrecognized arguments: --timout; did you mean --timeout?",
        ),
        (["ls", "--jsn"], "holdfast ls: unrecognized arguments: --jsn; did you mean --json?"),
        (["show", "a", "b"], "holdfast show: unrecognized arguments: b"),
        (["--url", "memory:", "ls"], "holdfast: unrecognized arguments: --url; options of a command follow its name"),
    ],
    ids=" ".join,
)
def test_unknown_arguments_are_reported_by_their_command(arguments: list[str], sentence: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.splitlines()[-1] == sentence
    assert done.stderr.startswith("usage: " + sentence.partition(":")[0])


def test_library_warnings_are_printed_and_tracebacks_need_debug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Logging(Failing):
        def run(self, arguments: argparse.Namespace) -> int:
            logger = logging.getLogger("holdfast.somewhere")
            logger.debug("a detail")
            try:
                raise self.error
            except BaseException:
                logger.warning("lock %s", "a\x1b", exc_info=True)
            return 0

    before = list(logging.getLogger("holdfast").handlers)  # a run in this process leaves one
    monkeypatch.setattr(main, "commands", lambda: {"log": Logging(ZeroDivisionError("cause"))})
    assert main.main(["log"]) == 0
    assert capsys.readouterr().err == "holdfast: lock a\\x1b\n"
    assert main.main(["log", "--debug"]) == 0
    message = capsys.readouterr().err
    assert message.startswith("holdfast: a detail\nholdfast: lock a\\x1b\nTraceback")
    assert logging.getLogger("holdfast").handlers == before


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["ls", "--help"]], ids=" ".join)
def test_only_the_chosen_command_is_imported(arguments: list[str]) -> None:
    script = (
        "import sys; from holdfast.cli import command, main\n"
        f"try: main.main({arguments!r})\n"
        "except SystemExit: pass\n"
        "print(*[name for name, row in command.commands().items() if row.module in sys.modules], file=sys.stderr)\n"
        "print(*{'holdfast.client', 'logging', 'rich', 'redis', 'shtab'} & sys.modules.keys(), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert done.stderr.splitlines() == [arguments[0] if arguments[0] == "ls" else "", ""]


def test_closed_output_pipe_prints_no_traceback() -> None:
    script = (
        "import sys; from holdfast.cli import main\n"
        "class Talk:\n"
        "    summary = 'talks'\n"
        "    reports = False\n"
        "    load = staticmethod(lambda: Talk)\n"
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
        assert process.wait(10) == exit_codes.FAILED


#: The demo writes its first line early and must then end its processes.
WRITERS = [
    ("doctor", "memory:"), ("doctor", "memory:", "--json"), ("demo",), ("--help",), ("--version",),
    ("config", "--url", "memory:"), ("show", "--url", "memory:", "a"), ("completion", "bash"),
]  # fmt: skip


def shell(redirected: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = f'exec "$@" {redirected}'
    command = ["sh", "-c", script, "sh", sys.executable, "-W", "error", "-m", "holdfast.cli", *arguments]
    # Buffering is the user's choice and decides where the error occurs.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment)


@pytest.mark.parametrize("arguments", WRITERS, ids=" ".join)
def test_full_disk_prints_a_one_line_error(arguments: tuple[str, ...]) -> None:
    done = shell(">/dev/full", *arguments)
    assert done.stderr == "holdfast: cannot write to stdout: No space left on device\n"
    assert done.returncode == exit_codes.FAILED


@pytest.mark.parametrize("arguments", WRITERS, ids=" ".join)
def test_closed_stdout_prints_a_one_line_error(arguments: tuple[str, ...]) -> None:
    done = shell(">&-", *arguments)
    assert done.stderr == "holdfast: stdout is closed: there is nowhere to write to\n"
    assert done.returncode == exit_codes.FAILED


@pytest.mark.parametrize("redirected", [">/dev/full 2>/dev/full", ">&- 2>&-"])
def test_exit_code_is_the_same_without_stderr(redirected: str) -> None:
    assert shell(redirected, "doctor", "memory:").returncode == exit_codes.FAILED


def test_closed_stderr_does_not_move_errors_to_stdout() -> None:
    done = shell("2>&-", "doctor", "nonsense:")
    assert (done.returncode, done.stdout) == (exit_codes.SETTINGS, "")


def script_of_signals(*lines: str) -> subprocess.CompletedProcess[str]:
    script = "\n".join(["import os, signal", "from holdfast.cli.stopping import unwinding", "me = os.getpid()", *lines])
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)


def test_signals_after_the_first_do_not_interrupt_the_clean_up() -> None:
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


def test_ignored_signal_stays_ignored() -> None:
    """As under nohup, or for background jobs of a shell."""
    done = script_of_signals(
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)",
        "with unwinding() as received:",
        "    os.kill(me, signal.SIGHUP)",
        "print(received)",
    )
    assert (done.returncode, done.stdout) == (0, "[]\n")
