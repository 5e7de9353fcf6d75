"""The command-line parser: argparse with exit code 64 for errors, and with subcommands that are imported on demand."""

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
    """Exits with EX_USAGE for wrong arguments, and escapes control characters in error messages."""

    def error(self, message: str) -> NoReturn:
        write_notice(self.format_usage().rstrip("\n"))
        write_error(message, command=self.prog)
        sys.exit(USAGE)

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """``error`` for unrecognized arguments, with the nearest option."""
        import difflib  # imported here: needed for errors only

        known = [option for option in self._option_string_actions if option.startswith("--")]
        found = [option for word in words if word.startswith("--") for option in difflib.get_close_matches(word, known)]
        hint = f"; did you mean {found[0]}?" if found else ""
        self.error(f"unrecognized arguments: {' '.join(words)}{hint}")


def parse(parser: Parser, argv: Sequence[str], namespace: argparse.Namespace) -> None:
    """Fill ``namespace``. Unrecognized arguments are reported by the subcommand's own parser, with its usage."""
    first = argv[0] if argv else ""
    if first.startswith("--") and not any(option.startswith(first) for option in parser._option_string_actions):
        parser.error(f"unrecognized arguments: {first}; options of a command follow its name")
    _, left_over = parser.parse_known_args(argv, namespace)
    if left_over:
        namespace.parser.refuse(left_over)


def chosen(argv: Sequence[str], known: Collection[str]) -> set[str]:
    """The subcommand that ``argv`` names, if any. Options before it take no value."""
    return set([word for word in argv if not word.startswith("-")][:1]).intersection(known)


def make_parser(rows: Mapping[str, Row], wanted: Collection[str]) -> Parser:
    """The parser of all subcommands. Only the ``wanted`` ones are imported and have arguments."""
    parser = Parser(prog="holdfast", description="Distributed locks that tell you when you lose them.")
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    _add_debug(parser)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, row in rows.items():
        subparser = subparsers.add_parser(name, help=row.summary, description=row.summary)
        if name in wanted:
            command: Command = row.load()
            subparser.set_defaults(command=command, parser=subparser)
            command.configure(subparser)
            _add_debug(subparser)
    return parser


def _add_debug(parser: argparse.ArgumentParser) -> None:
    # No default: the subcommand's default would overwrite a --debug before its name.
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the log, and tracebacks of errors"
    )
