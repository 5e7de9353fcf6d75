"""Completions are generated from the current parser, and the installed shells load them."""

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
def test_shipped_completions_are_up_to_date(shell: str) -> None:
    kept = file_for(shell).read_text("utf-8")
    if kept.splitlines()[-1] == made_by():
        assert kept == generated(shell), AGAIN
    else:  # made by another version of shtab, which may word the same script differently
        for name, options in _options().items():
            assert name in kept, AGAIN
            assert all(option.lstrip("-") in kept for option in options), AGAIN


def _options() -> dict[str, list[str]]:
    """Returns the long options of each subcommand."""
    rows = commands()
    (subparsers,) = [one for one in make_parser(rows, rows)._actions if isinstance(one, argparse._SubParsersAction)]
    return {
        name: [option for option in parser._option_string_actions if option.startswith("--")]
        for name, parser in subparsers.choices.items()
    }


def test_every_command_has_the_common_options() -> None:
    assert _options().keys() == commands().keys()
    for name, options in _options().items():
        assert "--debug" in options, name
        # The stdout of ``run`` belongs to the command it runs, so it reports elsewhere.
        assert ("--report" if name == "run" else "--json") in options, name


@pytest.mark.parametrize("shell", SHELLS)
def test_command_prints_the_completion_script(run: Run, shell: str) -> None:
    text = file_for(shell).read_text("utf-8")
    assert run("completion", shell) == (0, text, "")
    assert run("completion", shell, "--json").json == {"shell": shell, "completion": text}


@pytest.mark.parametrize("arguments", [["completion"], ["completion", "tcsh"]])
def test_unknown_shell_is_wrong_usage(run: Run, arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (64, "")


def complete(*words: str) -> list[str]:
    """Returns what bash offers for the last of ``words``."""
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
def test_shells_load_the_completion_script(shell: str) -> None:
    done = subprocess.run([shell, "-n", str(file_for(shell))], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
