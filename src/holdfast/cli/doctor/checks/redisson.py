"""Names that are shared with Redisson: settings that Java changes under a Python holder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.cli.doctor.facts import Facts
from holdfast.cli.doctor.finding import Finding, notice

#: Redisson's default (s). What a Java program has set is not known to the servers.
_LOCK_WATCHDOG_TIMEOUT: Final = 30.0


def watchdog_timeout(facts: Facts) -> Iterator[Finding]:
    """Java's renewal of a read-write lock sets its TTL, also below what a Python holder has asked for."""
    ttl = facts.options.ttl
    if facts.engine != "redlock" and ttl > _LOCK_WATCHDOG_TIMEOUT:
        yield notice(
            "redisson",
            "",
            f"ttl is {ttl:g} s: a Java program that uses RReadWriteLock on the same name ends it after its "
            f"lockWatchdogTimeout, by default {_LOCK_WATCHDOG_TIMEOUT:g} s",
            "beside Java, use rwlock() with a ttl that is not longer, or raise lockWatchdogTimeout there",
        )
