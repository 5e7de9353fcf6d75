"""What a condition decides about its queue. Pure: no clock, no I/O.

The queue of a register (:mod:`holdfast.engines.waiter_queue`) changes only under the lock. An entry is W (waiting)
until a notify makes it N. It stays N until the *end* of the critical section of its waiter: the store that ends that
also removes the entry. Each holder that reads the queue drops the entries of waiters that are not present, and passes
on their notifications. So a waiter that dies, times out or is cancelled, at whatever moment, never swallows one:

* dead or cancelled while W: dropped by the next reader;
* dead or cancelled while N, also inside its critical section: absent soon, and passed on by the next reader. If there
  is none, a waiter notices it (:func:`must_pass_on`) and takes the lock in order to read;
* timed out: it looks under the lock whether it is N by now, which counts.

Nothing more is promised than that: a notification may be passed on although its waiter lived (it was slow), so a wait
may return though nothing has changed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from holdfast.engines.registers import Look, Standing
from holdfast.engines.waiter_queue import NOTIFIED, WAITING, Entry, Queue


class Change(NamedTuple):
    """A queue, and who is to be woken when it is stored."""

    queue: Queue
    wake: tuple[str, ...] = ()


def pass_on(queue: Queue, present: Collection[str], mine: Collection[str]) -> Change:
    """Drop the entries of those that are gone. Each that was notified makes the next waiter of its condition notified.

    ``mine``: the entries of the caller itself, which holds the lock: it is there, whether or not it has looked lately.
    """
    changed: Queue = {}
    woken: tuple[str, ...] = ()
    for condition, entries in queue.items():
        here = [entry for entry in entries if entry.waiter in present or entry.waiter in mine]
        orphans = sum(entry.mark == NOTIFIED for entry in entries) - sum(entry.mark == NOTIFIED for entry in here)
        changed[condition], named = _notified(here, orphans, ())
        woken += named
    return Change(changed, woken)


def join(queue: Queue, condition: str, waiter: str) -> Change:
    """``waiter`` is the last in the queue of ``condition``."""
    return Change(queue | {condition: [*queue.get(condition, ()), Entry(waiter)]})


def notify(queue: Queue, condition: str, count: int | None, mine: Collection[str] = ()) -> Change:
    """The first ``count`` waiters of ``condition`` are notified (None: all). The caller's own entries do not count."""
    entries = queue.get(condition, [])
    changed, woken = _notified(entries, len(entries) if count is None else count, mine)
    return Change(queue | {condition: changed} if entries else queue, woken)


def settle(queue: Queue, mine: Collection[str]) -> Change:
    """The caller's critical section ends well: its entries leave."""
    return Change({name: [each for each in entries if each.waiter not in mine] for name, entries in queue.items()})


def give_up(queue: Queue, mine: Collection[str]) -> Change:
    """It ends with an exception: its entries leave, and so another waiter is notified for each."""
    changed: Queue = {}
    woken: tuple[str, ...] = ()
    for condition, entries in queue.items():
        rest = [entry for entry in entries if entry.waiter not in mine]
        own = sum(entry.mark == NOTIFIED for entry in entries) - sum(entry.mark == NOTIFIED for entry in rest)
        changed[condition], named = _notified(rest, own, ())
        woken += named
    return Change(changed, woken)


def mark_of(queue: Queue, waiter: str) -> str | None:
    """``WAITING``, ``NOTIFIED``, or None: it has no entry."""
    return next((mark for entries in queue.values() for each, mark in entries if each == waiter), None)


def is_over(look: Look, orphaned_looks: int) -> bool:
    """Whether a waiter that has looked should take the lock. ``orphaned_looks``: see ``must_pass_on``."""
    return look.standing is not Standing.WAITING or must_pass_on(look, orphaned_looks)


def must_pass_on(look: Look, orphaned_looks: int) -> bool:
    """Whether it is for this waiter to pass on the notification of one that is gone.

    ``orphaned_looks``: how many looks in a row have found one, this one included. The first in the queue takes the lock
    at once; the others give those before them a look each: they may be gone, too.
    """
    return look.orphan and orphaned_looks > look.rank


def _notified(entries: list[Entry], count: int, but: Collection[str]) -> tuple[list[Entry], tuple[str, ...]]:
    changed = list(entries)
    woken: list[str] = []
    for place, (waiter, mark) in enumerate(entries):
        if len(woken) < count and mark == WAITING and waiter not in but:
            changed[place] = Entry(waiter, NOTIFIED)
            woken.append(waiter)
    return changed, tuple(woken)
