"""The table of subcommands. A new subcommand is one module, and one row here.

The summaries are in the rows, so that ``holdfast --help`` imports none of the modules, and ``holdfast run`` only its
own. Shell completions are generated: run ``python -m holdfast.cli.completion.generate`` after each change.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol, cast


class Command(Protocol):
    """A module with these two names."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the subcommand's arguments. ``--debug`` is added for all."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the subcommand, and return the exit code. Results go to stdout, everything else to stderr (``output``).

        It may raise any error: ``main`` turns it into one line and an exit code. SIGINT, SIGTERM and SIGHUP raise
        SystemExit.
        """


class Row(NamedTuple):
    """One subcommand, not yet imported."""

    module: str
    summary: str
    #: It reports on stderr itself: it needs no stdout, and shows the library's log only with --debug.
    reports: bool = False

    def load(self) -> Command:
        return cast(Command, importlib.import_module(self.module))


_COMMANDS: Final[Mapping[str, Row]] = {
    "break": Row("holdfast.cli.breaking", "take a lock from its holder, if the holder still has this token"),
    "completion": Row("holdfast.cli.completion", "print the completion for bash, zsh or fish"),
    "config": Row("holdfast.cli.config", "print every setting and its origin, secrets masked; connects to nothing"),
    "demo": Row(
        "holdfast.cli.demo",
        "watch real processes lose updates, keep them with holdfast, and have a late write refused (15 s, no server)",
    ),
    "doctor": Row(
        "holdfast.cli.doctor",
        "examine the servers behind a URL: what could cost you a lock (Redis, ZooKeeper), with the remedies",
    ),
    "ladder": Row(
        "holdfast.cli.ladder",
        "run nine kinds of locks against the faults that break them, with real processes and servers (30 s)",
    ),
    "ls": Row("holdfast.cli.ls", "list the locks that are held, and their holders"),
    "run": Row("holdfast.cli.run", "run a command while a lock is held", reports=True),
    "show": Row("holdfast.cli.show", "print all that is known about one lock: holders, waiters, token, times"),
}


def commands() -> Mapping[str, Row]:
    return _COMMANDS
