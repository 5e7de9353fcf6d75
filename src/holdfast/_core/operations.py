"""Calls that are under way: acquires and releases, each known by its coroutine."""

from __future__ import annotations

import weakref
from collections.abc import Coroutine
from types import CoroutineType
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
#: A call, by its coroutine, which it does not keep alive.
Running = weakref.ref[Coroutine[Any, Any, Any]]


class Operations(Generic[T]):
    """What callers are doing at present. Callers hold the core's lock, except in ``begin`` and ``end``.

    A signal may end a call at any instruction, also in the middle of its own clean-up. So an operation is over when its
    coroutine is, whether or not it could remove itself from here: only the interpreter decides that.
    """

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: dict[T, Running] = {}

    def begin(self, operation: T, coroutine: Running) -> None:
        self._running[operation] = coroutine

    def end(self, operation: T) -> None:
        self._running.pop(operation, None)

    def __contains__(self, operation: T) -> bool:
        reference = self._running.get(operation)
        return reference is not None and _runs(reference())

    def all(self) -> list[T]:
        """Those under way. What was interrupted in its clean-up is forgotten here."""
        # A list of the keys is made in one step. One of the items is not: it makes tuples, so the collector may run,
        # and with it finalisers that end operations.
        for operation in list(self._running):
            if operation not in self:
                self.end(operation)
        return list(self._running)

    def __bool__(self) -> bool:
        return bool(self._running) and bool(self.all())


def _runs(coroutine: Coroutine[Any, Any, Any] | None) -> bool:
    return coroutine is not None and cast("CoroutineType[Any, Any, Any]", coroutine).cr_frame is not None
