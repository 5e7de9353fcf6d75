"""The program behind CMD, looked up before the lock is taken: a typo is reported at once, not after the wait."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.cli import exit_codes


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
