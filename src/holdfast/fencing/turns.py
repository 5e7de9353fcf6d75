"""Mutual exclusion of guards in this process: one guard at a time for each key, for threads and tasks."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Self

from holdfast.errors import UsageError


class GuardEntry(weakref.ref[Any]):
    """One entry into a guard: a weak reference to the guard, with the process, the thread, and, for ``async with``, the
    task.

    ``dropped`` is called with it if the guard becomes garbage before it is left: a signal may come before the first
    instruction of its exit. The reference to the task is weak, too: a task whose event loop was closed leaves its guard
    when it is collected.
    """

    __slots__ = ("process", "task", "thread")

    process: int
    thread: int
    task: weakref.ref[asyncio.Task[Any]] | None

    @classmethod
    def of(cls, guard: object, dropped: Callable[[Any], None], task: asyncio.Task[Any] | None = None) -> Self:
        self = cls(guard, dropped)
        self.process = os.getpid()
        self.thread = threading.get_ident()
        self.task = None if task is None else weakref.ref(task)
        return self

    def waits_for_itself(self, holder: GuardEntry) -> bool:
        """Whether waiting for ``holder`` would be a deadlock.

        A caller that blocks its thread cannot wait for anything that needs this thread: an outer guard of its own, or
        another task of the event loop that it blocks. A task cannot wait for itself.
        """
        return self.thread == holder.thread and (self.task is None or self.task == holder.task)


class Turns:
    """Which entry is inside, for each key. Stores nothing about a key without one. Never waits.

    It uses no lock, only single dict operations: a signal handler or finaliser may raise a guard of its own in the
    middle of these methods, on the same thread, and would wait for a lock for ever.
    """

    def __init__(self) -> None:
        self._inside: dict[Hashable, GuardEntry] = {}
        _all.add(self)

    def take(self, key: Hashable, entry: GuardEntry) -> bool:
        """True: ``entry`` is inside. False: another entry is. UsageError: waiting for that one would be a deadlock."""
        holder = self._inside.setdefault(key, entry)
        if holder is entry:
            return True
        if entry.waits_for_itself(holder):
            raise UsageError(
                "this guard would wait for ever: the same thread or task holds one on this resource. Do not nest "
                "guards or checks of one resource; in async code write 'async with fence.guard(...)'"
            )
        return False

    def has(self, key: Hashable, entry: GuardEntry) -> bool:
        """Whether ``entry`` is inside."""
        return self._inside.get(key) is entry

    def give(self, key: Hashable, entry: GuardEntry) -> None:
        """End the turn of ``entry``. No effect if it is not inside, so it may be repeated."""
        if self.has(key, entry):
            self._inside.pop(key, None)

    def after_fork_in_child(self) -> None:
        self._inside.clear()  # the threads inside stayed in the parent


_all: weakref.WeakSet[Turns] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for turns in list(_all):
        turns.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
