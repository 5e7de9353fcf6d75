"""Named lines: a process stops right before a line of its rung that has the comment ``# <- name``.

The rungs stay plain code: no hook, no callback. Tracing is on for the main thread and the rung's file only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

_MARK: Final = re.compile(r"(?P<code>.*?)\s*# <- (?P<name>\w+)$")


class NamedLine(NamedTuple):
    name: str
    number: int
    code: str


def named_lines(source: str) -> dict[int, NamedLine]:
    """The named lines of a source text, by line number."""
    found = ((number, _MARK.match(line)) for number, line in enumerate(source.splitlines(), 1))
    return {number: NamedLine(mark["name"], number, mark["code"].strip()) for number, mark in found if mark}


def watch(file: str, reached: Callable[[NamedLine], None]) -> None:
    """From now on call ``reached`` before this thread executes a named line of ``file``."""
    lines = named_lines(Path(file).read_text("utf-8"))

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != file:
            return None
        if event == "line" and (line := lines.get(frame.f_lineno)):
            reached(line)
        return trace

    sys.settrace(trace)
