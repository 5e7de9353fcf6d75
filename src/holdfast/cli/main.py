"""The command ``holdfast``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from holdfast._version import __version__
from holdfast.cli.command import FAILED, INTERRUPTED, Command, commands
from holdfast.cli.output import OutputLost, discard, flush, write_error
from holdfast.cli.stopping import unwinding
from holdfast.errors import LockError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand. Errors are one line on stderr; the exit code says the rest."""
    if sys.stdout is None:
        write_error("stdout is closed: there is nowhere to write to")
        return FAILED
    with unwinding() as received:
        code = _run(argv)
    # Cleaning up may have failed in its turn: after SIGHUP the terminal is gone.
    return 128 + received[0] if received else code


def _run(argv: Sequence[str] | None) -> int:
    try:
        try:
            arguments = _parser().parse_args(argv)
            command: Command = arguments.command
            return command.run(arguments)
        finally:
            flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OutputLost as lost:
        _report_lost(lost)
    except BrokenPipeError:  # as OutputLost, of a command that writes in its own way
        discard(sys.stdout)
    except LockError as error:
        write_error(str(error))
    except OSError as error:
        write_error(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
    return FAILED


def _report_lost(lost: OutputLost) -> None:
    discard(sys.stdout)
    cause = lost.__cause__
    assert isinstance(cause, OSError)
    if not isinstance(cause, BrokenPipeError):  # that a reader has read enough (| head) is in order
        write_error(f"cannot write to stdout: {cause.strerror}")


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
