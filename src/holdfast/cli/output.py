"""Writing to stdout and stderr, either of which may be closed, full, or a pipe without a reader."""

from __future__ import annotations

import os
import sys
from typing import TextIO


class OutputLost(Exception):
    """Raised when stdout does not take the result. ``__cause__`` is the OSError that says why."""


def write_result(text: str) -> None:
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


def write_error(text: str, *, command: str = "holdfast") -> None:
    """Write one line to stderr, if that is possible: the exit code reports the failure too."""
    if sys.stderr is None:
        return  # print() would write to stdout instead
    try:
        print(f"{command}: {text}", file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Drop what ``stream`` still buffers. Python would write it at exit, fail, and replace the exit code by 120."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
