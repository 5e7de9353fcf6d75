"""The parser of the command line: argparse, with our exit code, and with subcommands that are imported when needed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from holdfast._version import __version__
from holdfast.cli.command import Command, Row
from holdfast.cli.exit_codes import USAGE
from holdfast.cli.output import write_error, write_notice


class Parser(argparse.ArgumentParser):
    """Ends with EX_USAGE for wrong arguments, and repeats none of their characters that a terminal would act on."""

    def error(self, message: str) -> NoReturn:
        write_notice(self.format_usage().rstrip("\n"))
        write_error(message, command=self.prog)
        sys.exit(USAGE)


def chosen(argv: Sequence[str], known: Collection[str]) -> set[str]:
    """The subcommand that ``argv`` names, if it does. Options before it take no value."""
    return set([word for word in argv if not word.startswith("-")][:1]).intersection(known)


def make_parser(rows: Mapping[str, Row], wanted: Collection[str]) -> Parser:
    """The whole parser, in which only the ``wanted`` subcommands are imported and know their arguments."""
    parser = Parser(prog="holdfast", description="Distributed locks that tell you when you lose them.")
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    _add_debug(parser)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, row in rows.items():
        subparser = subparsers.add_parser(name, help=row.summary, description=row.summary)
        if name in wanted:
            command: Command = row.load()
            subparser.set_defaults(command=command)
            command.configure(subparser)
            _add_debug(subparser)
    return parser


def _add_debug(parser: argparse.ArgumentParser) -> None:
    # Without a default: the subcommand's would overwrite what was said before its name.
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the log, and tracebacks of errors"
    )
