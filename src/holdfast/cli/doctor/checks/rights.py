"""Rights that the user lacks, and the consequences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.cli.doctor.facts import RIGHTS, Facts, Node, Purpose
from holdfast.cli.doctor.finding import Finding, Level, ok

_WITHOUT: Final = {
    Purpose.LOCKS: (Level.PROBLEM, "taking, renewing or releasing a lock is refused"),
    Purpose.WAITING: (Level.PROBLEM, "waiting for a busy lock, and fair=True, are refused"),
    Purpose.INSPECTING: (Level.WARNING, "inspect() and break_() are refused"),
    Purpose.PUSHES: (Level.NOTICE, "waiters are woken by pub/sub, and a loss is noticed at the next renewal"),
    Purpose.CHANNEL: (
        Level.NOTICE,
        "clients that wait on a lock's channel, such as Redisson in Java, are not woken",
    ),
    Purpose.HAND_OVER: (Level.NOTICE, "a release does not hand the lock over: processes that wait compete for it"),
    Purpose.SHARED: (Level.NOTICE, "read-write locks and semaphores are refused"),
    Purpose.LISTING: (Level.NOTICE, "locks() is refused, and errors about keys of other libraries are less clear"),
    Purpose.REGISTERS: (Level.NOTICE, "conditions, monitors, latches and barriers are refused"),
    Purpose.FURTHER_CHANNELS: (
        Level.NOTICE,
        "waiters for read-write locks, semaphores and conditions look for themselves where no push wakes them",
    ),
    Purpose.REPLICAS: (Level.NOTICE, "replicas=n would be refused"),
}

_NOT_ON_REDLOCK: Final = frozenset({Purpose.HAND_OVER, Purpose.SHARED, Purpose.REGISTERS, Purpose.FURTHER_CHANNELS})


def lacking(node: Node, facts: Facts) -> Iterator[Finding]:
    if RIGHTS in node.withheld:
        return  # not known
    for purpose, (level, consequence) in _WITHOUT.items():
        if facts.engine == "redlock" and purpose in _NOT_ON_REDLOCK:
            continue
        rights = dict.fromkeys(lack.right for lack in node.lacks if lack.purpose is purpose)
        if purpose is Purpose.REPLICAS:
            if facts.options.replicas:
                level, consequence = Level.PROBLEM, f"replicas={facts.options.replicas} is refused"
            elif not node.replicas:
                continue
        if rights:
            sentence = f"with this user's rights {consequence}"
            yield Finding(level, "rights", node.name, sentence, f"ACL SETUSER (this user) {' '.join(rights)}")
    if not node.lacks:
        yield ok("rights", node.name, "this user may do all that holdfast does")
