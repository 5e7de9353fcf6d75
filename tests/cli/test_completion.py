"""Completions: made from the parser as it is, and loaded by the shells that are installed."""

from __future__ import annotations

import argparse
import shutil
import subprocess

import pytest

from holdfast.cli.command import commands
from holdfast.cli.completion import SHELLS, file_for
from holdfast.cli.completion.generate import generated, made_by
from holdfast.cli.parser import make_parser
from tests.cli.command import Run

AGAIN = "run: python -m holdfast.cli.completion.generate"


@pytest.mark.parametrize("shell", SHELLS)
def test_they_are_up_to_date(shell: str) -> None:
    kept = file_for(shell).read_text("utf-8")
    if kept.splitlines()[-1] == made_by():
        assert kept == generated(shell), AGAIN
    else:  # made by another version of shtab, which may write the same in other words
        for name, options in _options().items():
            assert name in kept, AGAIN
            assert all(option.lstrip("-") in kept for option in options), AGAIN


def _options() -> dict[str, list[str]]:
    """Each subcommand with its long options."""
    rows = commands()
    (subparsers,) = [one for one in make_parser(rows, rows)._actions if isinstance(one, argparse._SubParsersAction)]
    return {
        name: [option for option in parser._option_string_actions if option.startswith("--")]
        for name, parser in subparsers.choices.items()
    }


def test_every_command_has_its_options() -> None:
    assert _options().keys() == commands().keys()
    for name, options in _options().items():
        assert "--debug" in options, name
        # The stdout of ``run`` is that of the command it runs: it reports elsewhere.
        assert ("--report" if name == "run" else "--json") in options, name


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_them(run: Run, shell: str) -> None:
    text = file_for(shell).read_text("utf-8")
    assert run("completion", shell) == (0, text, "")
    assert run("completion", shell, "--json").json == {"shell": shell, "completion": text}


@pytest.mark.parametrize("arguments", [["completion"], ["completion", "tcsh"]])
def test_another_shell_is_wrong_usage(run: Run, arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (64, "")


def complete(*words: str) -> list[str]:
    """What bash offers for the last of ``words``."""
    script = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()\n'
        'function=$(complete -p holdfast | sed "s/.*-F \\([^ ]*\\).*/\\1/")\n'
        '"$function"; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    arguments = ["bash", "--norc", "-c", script, "bash", str(file_for("bash")), *words]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=30, check=True)
    assert [line for line in done.stderr.splitlines() if "compopt" not in line] == []
    return done.stdout.split()


def test_bash_completes_commands_options_and_choices() -> None:
    assert set(complete("holdfast", "")) == commands().keys()
    assert complete("holdfast", "sh") == ["show"]
    assert complete("holdfast", "show", "--js") == ["--json"]
    assert complete("holdfast", "--debug", "break", "--to") == ["--token"]
    assert complete("holdfast", "completion", "f") == ["fish"]
    assert "--token" not in complete("holdfast", "ls", "--")


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell)])
def test_shells_read_them(shell: str) -> None:
    done = subprocess.run([shell, "-n", str(file_for(shell))], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
