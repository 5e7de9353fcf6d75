"""Finds the program of CMD before the lock is taken, so that a typo is reported immediately, not after the wait.

Also its name, for ``holdfast ls`` and ``holdfast show``.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from holdfast.cli import exit_codes

#: Names of CMD that may be shown to other users. A word with any other character, such as ``PASSWORD=x``, may not.
_PLAIN: Final = re.compile(r"[\w./+-]{1,100}")


class CannotRun(NamedTuple):
    """CMD cannot be run. ``code`` is 126 or 127, as a shell has it."""

    code: int
    message: str


def find(program: str, environment: Mapping[str, str]) -> str | CannotRun:
    """The path to execute. Not guaranteed: that exec succeeds. The file may change, or be of the wrong format."""
    if "/" in program:
        candidates = [program]
    elif program:
        candidates = [os.path.join(place or os.curdir, program) for place in os.get_exec_path(environment)]
    else:
        candidates = []
    there = False
    for candidate in candidates:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
        there = there or os.path.exists(candidate)
    return _refusal(program, exit_codes.CANNOT_RUN if there else exit_codes.NOT_FOUND)


def _refusal(program: str, code: int) -> CannotRun:
    if code == exit_codes.CANNOT_RUN:
        return CannotRun(code, f"{program}: not an executable file; the lock was not taken")
    return CannotRun(code, f"{program}: command not found; the lock was not taken")


def after_exec(program: str, number: int) -> CannotRun:
    """The same for an exec that failed with errno ``number``, though the program was found."""
    gone = number in (errno.ENOENT, errno.ENOTDIR)  # also of the interpreter that a script names
    code = exit_codes.NOT_FOUND if gone else exit_codes.CANNOT_RUN
    hint = " (a script needs a first line such as #!/bin/sh)" if number == errno.ENOEXEC else ""
    return CannotRun(code, f"{program}: {os.strerror(number)}{hint}; the lock was released")


def label(program: str, shell: str | None) -> str | None:
    """The name of CMD without its path, for the lock's label; None if it should not be shown.

    ``shell``: the STRING of ``-c``; then it is its first word. Never an argument, which may be a secret.
    """
    word = program if shell is None else next(iter(shell.split(None, 1)), "")
    return os.path.basename(word) or None if _PLAIN.fullmatch(word) else None
