"""Whether a name may be taken, decided from a row that was read a moment ago. Pure.

The decision is made *outside* the transaction that acts on it, so that no Python code runs inside the transaction. This
is safe for two reasons. Expiry, death and release are permanent: the clock does not run backwards, and neither a dead
process's identity (liveness.py) nor a released owner (notes.py) is ever reused. And the taking statement is conditional
on the owner and the expiry that were judged: if a renewal or another holder comes in between, it changes nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

ADOPTED = "~"


class Row(NamedTuple):
    """A lock as stored. ``owner`` is None if it is free. Times are in µs."""

    owner: str | None
    process: str
    boot: str
    expires: int
    ttl: int
    token: int


class Verdict(enum.Enum):
    FREE = "free"
    LAPSED = "lapsed"  # its owner's process is dead, or its lease has expired
    HELD = "held"
    FOREIGN = "foreign"  # written under another kernel: see adopted()


def judge(row: Row, now: int, boot: str, is_dead: Callable[[str], bool]) -> Verdict:
    """Whether a process of the kernel ``boot`` may take the name at ``now``."""
    if row.owner is None:
        return Verdict.FREE
    if row.boot == boot:
        return Verdict.LAPSED if row.expires <= now or is_dead(row.process) else Verdict.HELD
    if row.boot == adopted(boot):
        return Verdict.LAPSED if row.expires <= now else Verdict.HELD
    return Verdict.FOREIGN


def adopted(boot: str) -> str:
    """The boot id that marks a foreign row whose remaining time runs on this kernel's clock.

    A row from another kernel (before a reboot, or on a shared disk that was not recognised) has an expiry on another
    clock, and its process's flock is not visible here. So the first process that sees the row gives it one whole ttl
    from that moment, on this kernel's clock, and marks it. The mark is stored in the file, so that a cron job that
    tries once a minute reaches the end of that ttl too. If the foreign holder is alive, its next renewal writes its own
    boot id again, and the wait starts over.
    """
    return ADOPTED + boot
