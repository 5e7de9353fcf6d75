"""When may a name be taken? Decided here, from a row that was read a moment ago; no I/O of its own.

The decision is made *outside* the transaction that acts on it, so that no Python runs inside. That is as safe, for two
reasons: expiry and death are permanent (the clock does not run back; a dead process's name is never used again, see
liveness.py), and the taking statement is conditional on the very owner and expiry that were judged, so a renewal or a
new holder in between makes it do nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

ADOPTED = "~"


class Row(NamedTuple):
    """A lock as stored. ``owner`` is None when it is free. Times in µs."""

    owner: str | None
    process: str
    boot: str
    expires: int
    ttl: int
    token: int


class Verdict(enum.Enum):
    FREE = "free"
    LAPSED = "lapsed"  # its owner is dead, or its lease ran out
    HELD = "held"
    FOREIGN = "foreign"  # written under another kernel: see adopted()


def judge(row: Row, now: int, boot: str, is_dead: Callable[[str], bool]) -> Verdict:
    """May the name be taken at ``now`` by a process of the kernel ``boot``?"""
    if row.owner is None:
        return Verdict.FREE
    if row.boot == boot:
        return Verdict.LAPSED if row.expires <= now or is_dead(row.process) else Verdict.HELD
    if row.boot == adopted(boot):
        return Verdict.LAPSED if row.expires <= now else Verdict.HELD
    return Verdict.FOREIGN


def adopted(boot: str) -> str:
    """The boot id of a foreign row whose clock we have started.

    A row from another kernel (before a reboot; a shared disk that was not recognised) has an expiry on a clock that is
    not ours, and its process's flock is not for us to see. So whoever sees it first gives it one whole ttl from then,
    on our clock, and marks it so. That is kept in the file: a cron job that tries once a minute must come to the end of
    it too. If the foreign holder is alive after all, its next renewal writes its own boot id again, and the wait starts
    anew.
    """
    return ADOPTED + boot
