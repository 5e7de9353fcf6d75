"""The queue of a register: who waits for which condition, as plain text. Pure: no clock, no I/O.

``full=3f2a:W,77b0:N;empty=91c4:W``: for each condition its waiters, in order; W waits, N was notified and has not yet
left its critical section. A condition without waiters is not listed. The text is small and regular, so that a script at
a server can answer a waiter's look without sending it the whole queue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from holdfast.engines.registers import Look, Standing

WAITING: Final = "W"
NOTIFIED: Final = "N"


class Entry(NamedTuple):
    """One waiter. ``waiter`` has no character but letters, digits and hyphens."""

    waiter: str
    mark: str = WAITING


#: The entries of each condition, in order.
Queue = dict[str, list[Entry]]


def parse(text: str) -> Queue:
    """The entries of each condition. ValueError for what is not such a text."""
    queue: Queue = {}
    if not text:
        return queue
    for line in text.split(";"):
        condition, separator, entries = line.partition("=")
        queue[condition] = [Entry(*entry.split(":")) for entry in entries.split(",")]
        if not separator or any(mark not in (WAITING, NOTIFIED) for _, mark in queue[condition]):
            raise ValueError(f"not a queue of waiters: {text!r}")
    return queue


def to_text(queue: Queue) -> str:
    if not queue:
        return ""
    return ";".join(
        f"{condition}={','.join(f'{entry.waiter}:{entry.mark}' for entry in entries)}"
        for condition, entries in queue.items()
        if entries
    )


def look(text: str, waiter: str, present: Collection[str]) -> Look:
    """How ``waiter`` stands in the queue."""
    return looks(text, present).get(waiter, Look(Standing.NOT_QUEUED))


def looks(text: str, present: Collection[str]) -> dict[str, Look]:
    """The same for all waiters, in one pass."""
    found: dict[str, Look] = {}
    for entries in parse(text).values():
        orphans = {waiter for waiter, mark in entries if mark == NOTIFIED and waiter not in present}
        rank = 0
        for waiter, mark in entries:
            orphan = bool(orphans) and orphans != {waiter}
            if mark == NOTIFIED:
                found.setdefault(waiter, Look(Standing.NOTIFIED, 0, orphan))
            else:
                found.setdefault(waiter, Look(Standing.WAITING, rank, orphan))
                rank += waiter in present
    return found


def waiting(queues: Iterable[tuple[object, Collection[str]]]) -> dict[str, int]:
    """How many present waiters each condition has that were not notified yet, for people.

    ``queues``: of each register of a lock its queue, and who is present. What is not such a text is left out: another
    program may have written it.
    """
    numbers: dict[str, int] = {}
    for text, present in queues:
        try:
            found = parse(text) if isinstance(text, str) else {}
        except (ValueError, TypeError):
            continue
        for condition, entries in found.items():
            count = sum(entry.mark == WAITING and entry.waiter in present for entry in entries)
            if count:
                numbers[condition] = numbers.get(condition, 0) + count
    return numbers
