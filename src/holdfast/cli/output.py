"""Writing to stdout and stderr, either of which may be closed, full, or a pipe without a reader."""

from __future__ import annotations

import os
import sys
from typing import TextIO


class OutputLost(Exception):
    """Raised when stdout does not take the result. ``__cause__`` is the OSError that says why."""


def say(text: str) -> None:
    """Write a result to stdout, at once."""
    try:
        print(text, flush=True)
    except OSError as error:
        raise OutputLost from error


def flush() -> None:
    """Write what others, such as argparse, have left in the buffer of stdout."""
    try:
        sys.stdout.flush()
    except OSError as error:
        raise OutputLost from error


def complain(text: str, *, command: str = "holdfast") -> None:
    """One line to stderr. If that is lost too, the exit code has to do."""
    if sys.stderr is None:
        return  # print() would write to stdout instead
    try:
        print(f"{command}: {text}", file=sys.stderr, flush=True)
    except OSError:
        abandon(sys.stderr)


def abandon(stream: TextIO) -> None:
    """Discard what ``stream`` still holds. Python would try to write it at exit, complain, and exit with 120."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
