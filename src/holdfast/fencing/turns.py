"""Which guard is inside, in this process: one at a time for each key, for threads and tasks alike."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Self

from holdfast.errors import UsageError


class Visitor(weakref.ref[Any]):
    """One entry into a guard: a weak reference to it, with the process, the thread that runs, and the task on it if the
    caller can give way to other tasks.

    ``dropped`` is called with it if the guard becomes garbage before it was left: a signal may come before the first
    instruction of its exit. The task is referenced weakly, too: one whose event loop was closed leaves its guard when
    it is collected.
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

    def waits_for_itself(self, holder: Visitor) -> bool:
        """Whether waiting for ``holder`` could never end.

        A caller that blocks its thread waits in vain for anything that needs this thread: an outer guard of its own,
        and also another task of the event loop that it would block. A task only waits in vain for itself.
        """
        return self.thread == holder.thread and (self.task is None or self.task == holder.task)


class Turns:
    """Turn-taking by trying. Keeps nothing about a key that has no visitor inside.

    No lock: each step is one operation of a dict. A signal handler or a finaliser that raises a guard of its own in the
    middle of these methods, on the same thread, would wait for a lock for ever.
    """

    def __init__(self) -> None:
        self._inside: dict[Hashable, Visitor] = {}
        _all.add(self)

    def take(self, key: Hashable, visitor: Visitor) -> bool:
        """True: ``visitor`` is inside. False: another one is. UsageError: that one waits for ``visitor``."""
        holder = self._inside.setdefault(key, visitor)
        if holder is visitor:
            return True
        if visitor.waits_for_itself(holder):
            raise UsageError(
                "this guard would wait for ever: the same thread or task holds one on this resource. Do not nest "
                "guards or checks of one resource; in async code write 'async with fence.guard(...)'"
            )
        return False

    def has(self, key: Hashable, visitor: Visitor) -> bool:
        """Whether ``visitor`` is inside."""
        return self._inside.get(key) is visitor

    def give(self, key: Hashable, visitor: Visitor) -> None:
        """No effect if ``visitor`` is not inside, so it may be repeated. Only its own guard gives a visitor's turn."""
        if self.has(key, visitor):
            self._inside.pop(key, None)

    def after_fork_in_child(self) -> None:
        self._inside.clear()  # the threads inside stayed in the parent


_all: weakref.WeakSet[Turns] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for turns in list(_all):
        turns.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
