"""Findings for people and for programs."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdfast.cli.doctor.finding import EXIT_CODES, Finding, Level, worst
from holdfast.cli.output import visible

_COLORS: Final = {Level.OK: "32", Level.NOTICE: "36", Level.WARNING: "33", Level.PROBLEM: "1;31"}
_WIDEST: Final = 7  # "warning", "problem"


def as_data(target: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """For JSON: what was examined, the worst level, and every finding."""
    level = worst(findings)
    return {
        "target": target,
        "level": level.word,
        "exit_code": EXIT_CODES[level],
        "findings": [
            {
                "level": finding.level.word,
                "check": finding.check,
                "node": finding.node,
                "sentence": finding.sentence,
                "remedy": finding.remedy,
            }
            for finding in findings
        ],
    }


def as_text(target: str, findings: Sequence[Finding]) -> str:
    """Server by server: a line for each finding, its remedy below it, and the verdict at the end.

    Wrapped and colored on a terminal; elsewhere each finding and each remedy is one line.
    """
    on_terminal = sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
    width = shutil.get_terminal_size().columns if on_terminal else 0
    color = on_terminal and not os.environ.get("NO_COLOR")
    return "\n".join([f"holdfast doctor: {visible(target)}", *_lines(findings, width, color=color)])


def _lines(findings: Sequence[Finding], width: int, *, color: bool) -> Iterator[str]:
    nodes = dict.fromkeys(finding.node for finding in findings)
    checks = max((len(finding.check) for finding in findings), default=0)
    for node in nodes:
        yield ""
        if node:
            yield node
        for finding in findings:
            if finding.node == node:
                yield from _finding(finding, checks, width, color=color)
    yield ""
    yield verdict(findings)


def _finding(finding: Finding, checks: int, width: int, *, color: bool) -> Iterator[str]:
    word = finding.level.word.ljust(_WIDEST)
    mark = f"\x1b[{_COLORS[finding.level]}m{word}\x1b[0m" if color else word
    indent = " " * (_WIDEST + checks + 6)
    first, *others = _wrapped(finding.sentence, width - len(indent))
    yield f"  {mark}  {finding.check.ljust(checks)}  {first}"
    yield from (indent + line for line in others)
    if finding.remedy and finding.level is not Level.OK:
        yield from (indent + line for line in _wrapped(f"-> {finding.remedy}", width - len(indent)))


def _wrapped(text: str, width: int) -> list[str]:
    # If the window is too narrow, let the terminal break the lines.
    return (
        textwrap.wrap(text, width, subsequent_indent="   " if text.startswith("->") else "") if width >= 20 else [text]
    )


def verdict(findings: Sequence[Finding]) -> str:
    """One line: the number of findings of each level."""
    counts = {level: sum(finding.level is level for finding in findings) for level in reversed(Level)}
    said = [f"{count} {level.word}{'s' if count > 1 else ''}" for level, count in counts.items() if count and level]
    return f"verdict: {', '.join(said) if said else 'everything in order'}"
