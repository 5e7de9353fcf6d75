"""Writes to stdout and stderr, either of which may be closed, full, or a pipe without a reader.

Names of locks, hosts and programs come from other parties. Every character in them that could move a terminal's cursor
or reorder its text is replaced by a visible escape.
"""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO


class OutputLost(Exception):
    """Raised when the result cannot be written to stdout. ``__cause__`` is the OSError."""


def visible(text: str) -> str:
    r"""``text`` on one line, with control and format characters as escapes: ``\n``, ``\x1b``, ``\u202e``.

    Backslashes are kept, so that it may be applied twice. The result is for people and may be ambiguous; JSON is exact.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def write_result(text: str, *, styled: bool = False) -> None:
    """Write a result to stdout, and flush. Newlines in ``text`` are kept.

    ``styled``: tabs and escape sequences are kept, too; the caller has escaped names.
    """
    shown = text if styled else "\n".join(visible(line) for line in text.split("\n"))
    try:
        print(_encodable(shown, sys.stdout), flush=True)
    except OSError as error:
        raise OutputLost from error


def write_json(value: Any) -> None:
    """Write one JSON document to stdout, on one line of ASCII, and flush."""
    import json

    # json does not escape DEL, which is ASCII, and a terminal may act on it.
    write_result(json.dumps(value, allow_nan=False).replace("\x7f", "\\u007f"), styled=True)


def flush() -> None:
    """Write what other code, such as argparse, has left in the buffer of stdout."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        raise OutputLost from error


def write_error(text: str, *, command: str = "holdfast") -> None:
    """Write one line to stderr, if possible. The exit code reports the failure, too."""
    write_notice(f"{command}: {visible(text)}")


def write_notice(text: str) -> None:
    """Write lines to stderr, if possible. Newlines in ``text`` are kept."""
    if sys.stderr is None:
        return  # print() would write to stdout instead
    shown = "\n".join(visible(line) for line in text.split("\n"))
    try:
        print(_encodable(shown, sys.stderr), file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def _encodable(text: str, stream: TextIO) -> str:
    """``text`` with escapes for characters that the stream's encoding lacks, as in the locale "C"."""
    encoding = stream.encoding or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def discard(stream: TextIO) -> None:
    """Drop what ``stream`` still buffers. Otherwise Python would fail to write it at exit, and exit with code 120."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
