"""The command ``holdfast``."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import Final

from holdfast.cli.command import commands
from holdfast.cli.exit_codes import FAILED, SIGNALLED, SOFTWARE, code_for
from holdfast.cli.output import OutputLost, discard, flush, write_error, write_notice
from holdfast.cli.parser import chosen, make_parser, parse
from holdfast.cli.stopping import unwinding
from holdfast.errors import LockError

_INTERRUPTED: Final = SIGNALLED + signal.SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand. An error is one line on stderr, and the exit code tells which kind it was."""
    argv = sys.argv[1:] if argv is None else argv
    rows = commands()
    if sys.stdout is None and not any(rows[name].reports for name in chosen(argv, rows)):
        write_error("stdout is closed: there is nowhere to write to")
        return FAILED
    with unwinding() as received:
        code = _run(argv)
    # The signal's exit code, even if the clean-up failed: after SIGHUP there is no terminal.
    return SIGNALLED + received[0] if received else code


def _run(argv: Sequence[str]) -> int:
    arguments = argparse.Namespace(debug=False)
    try:
        try:
            rows = commands()
            wanted = chosen(argv, rows)
            parse(make_parser(rows, wanted), argv, arguments)
            from holdfast.cli.logs import logging_to_stderr  # --help and --version need no logging

            quiet = any(rows[name].reports for name in wanted)
            with logging_to_stderr(debug=arguments.debug, quiet=quiet):
                code: int = arguments.command.run(arguments)
                return code
        finally:
            flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OutputLost as lost:
        _report_lost(lost)
        return FAILED
    except BrokenPipeError:  # as OutputLost, from a command that writes to stdout directly
        discard(sys.stdout)
        return FAILED
    except Exception as error:
        if arguments.debug:
            _write_traceback(error)
        return _report(error)


def _report(error: Exception) -> int:
    """Write one line about ``error``, and return the exit code for it."""
    if isinstance(error, LockError):
        write_error(str(error))
        return code_for(error)
    if isinstance(error, OSError):
        write_error(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
        return FAILED
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    write_error(f"internal error: {text}; --debug shows where")
    return SOFTWARE


def _write_traceback(error: Exception) -> None:
    import traceback

    write_notice("".join(traceback.format_exception(error)).rstrip("\n"))


def _report_lost(lost: OutputLost) -> None:
    discard(sys.stdout)
    cause = lost.__cause__
    assert isinstance(cause, OSError)
    if not isinstance(cause, BrokenPipeError):  # a reader that closes its pipe early (| head) is no error
        write_error(f"cannot write to stdout: {cause.strerror}")


if __name__ == "__main__":
    sys.exit(main())
