"""What a subcommand is, and which there are. A new one is one module, and one line here."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from typing import Final, Protocol, cast

#: Exit codes. A subcommand may document more of its own.
OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2  # argparse's own
INTERRUPTED: Final = 130  # as a shell says it: 128 + SIGINT


class Command(Protocol):
    """A module with these three names. Importing it must be cheap: every call of ``holdfast`` does."""

    SUMMARY: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the subcommand's arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it, and return the exit code. Results go to stdout, everything else to stderr (see ``output``).

        LockError, OSError and OutputLost may pass. SIGINT, SIGTERM and SIGHUP arrive as an exception.
        """


_MODULES: Final[Mapping[str, str]] = {
    "demo": "holdfast.cli.demo",
    "doctor": "holdfast.cli.doctor",
    "run": "holdfast.cli.run",
}


def commands() -> Mapping[str, Command]:
    return {name: cast(Command, importlib.import_module(module)) for name, module in _MODULES.items()}
