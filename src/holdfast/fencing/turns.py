"""Who is inside a guard in this process: one at a time for each key, threads and tasks alike."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Hashable
from typing import Any, NamedTuple

from holdfast.errors import UsageError


class Visitor(NamedTuple):
    """The thread that runs, and the task on it if the caller is one that can give way to other tasks."""

    thread: int
    task: asyncio.Task[Any] | None

    @classmethod
    def blocking(cls) -> Visitor:
        return cls(threading.get_ident(), None)

    @classmethod
    def current_task(cls) -> Visitor:
        return cls(threading.get_ident(), asyncio.current_task())

    def waits_for_itself(self, holder: Visitor) -> bool:
        """Whether waiting for ``holder`` could never end.

        A caller that blocks its thread waits in vain for anything that needs this thread: an outer guard of its own,
        and also another task of the event loop that it would block. A task only waits in vain for itself.
        """
        return self.thread == holder.thread and (self.task is None or self.task is holder.task)


class Turns:
    """Turn-taking by trying. Keeps nothing about a key that nobody is inside of."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._inside: dict[Hashable, Visitor] = {}
        _all.add(self)

    def take(self, key: Hashable, visitor: Visitor) -> bool:
        """True: ``visitor`` is inside. False: somebody else is. UsageError: that somebody waits for ``visitor``."""
        with self._mutex:
            holder = self._inside.setdefault(key, visitor)
            if holder is visitor:
                return True
        if visitor.waits_for_itself(holder):
            raise UsageError(
                "this guard would wait for ever: the same thread or task holds one on this resource. Do not nest "
                "guards or checks of one resource; in async code write 'async with fence.guard(...)'"
            )
        return False

    def give(self, key: Hashable) -> None:
        with self._mutex:
            del self._inside[key]

    def after_fork_in_child(self) -> None:
        # The threads inside stayed in the parent, perhaps one of them in the middle of take().
        self._mutex = threading.Lock()
        self._inside.clear()


_all: weakref.WeakSet[Turns] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for turns in list(_all):
        turns.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
