"""The command ``holdfast``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from holdfast._version import __version__
from holdfast.cli.command import FAILED, INTERRUPTED, Command, commands
from holdfast.errors import LockError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand. Errors are one line on stderr; the exit code says the rest."""
    arguments = _parser().parse_args(argv)
    command: Command = arguments.command
    try:
        code = command.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (| head). Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except LockError as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="holdfast", description="Distributed locks that tell you when you lose them.")
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in commands().items():
        subparser = subparsers.add_parser(name, help=command.SUMMARY, description=command.SUMMARY)
        subparser.set_defaults(command=command)
        command.configure(subparser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
