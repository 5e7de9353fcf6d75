"""Findings: the result of each check, and the exit code for all of them. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import Final

from holdfast.cli.exit_codes import OK
from holdfast.cli.output import visible


class Level(enum.IntEnum):
    """The severity, lowest first."""

    OK = 0
    NOTICE = 1  #: good to know; nothing must be done
    WARNING = 2  #: locks work, but some fault will cost more than necessary
    PROBLEM = 3  #: locks do not work, or can be lost without any fault

    @property
    def word(self) -> str:
        return self.name.lower()


#: Beside those of every command.
EXIT_CODES: Final = {Level.OK: OK, Level.NOTICE: OK, Level.WARNING: 3, Level.PROBLEM: 4}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. ``node`` is host:port; empty: it is about all servers together."""

    level: Level
    check: str
    node: str
    sentence: str
    remedy: str = ""

    def __post_init__(self) -> None:
        # All findings pass here on their way to terminals and logs: answers of servers may contain escape sequences.
        for field in fields(self)[1:]:
            object.__setattr__(self, field.name, visible(getattr(self, field.name)))


ok: Final = partial(Finding, Level.OK)
notice: Final = partial(Finding, Level.NOTICE)
warning: Final = partial(Finding, Level.WARNING)
problem: Final = partial(Finding, Level.PROBLEM)


def worst(findings: Iterable[Finding]) -> Level:
    return max((finding.level for finding in findings), default=Level.OK)
