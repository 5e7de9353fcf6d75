"""Calls that are under way: acquires, releases and waits, each known by its coroutine, or by an object in its frame."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any, Generic, Protocol, TypeVar, cast

T = TypeVar("T")


class Call:
    """A call that is no coroutine: a variable of its frame has this, and nothing else does."""

    __slots__ = ("__weakref__",)


#: A call, by its coroutine or its object, which it does not keep alive.
Running = weakref.ref[Coroutine[Any, Any, Any]] | weakref.ref[Call]


class Withdrawable(Protocol):
    """A call whose effect at the engine is of no use to any caller if it was interrupted."""

    def withdraw(self) -> None:
        """Have the watchdog make sure that nothing of it stays at the engine. No I/O."""


class Operations(Generic[T]):
    """What callers are doing at present. Callers hold the core's lock, except in ``begin`` and ``end``.

    A signal may end a call at any instruction, also in the middle of its own clean-up. So a call ends its operation
    when nothing is left to be done, and not in a ``finally``. An operation whose coroutine is over without that was
    interrupted in its clean-up: ``on_garbage`` is called when the interpreter frees the coroutine, or the object of a
    call that is none, and the watchdog finishes it (see repairs.py).
    """

    __slots__ = ("on_garbage", "running")

    def __init__(self, on_garbage: Callable[[Running], object]) -> None:
        self.running: dict[T, Running] = {}  #: changed by one step at a time
        self.on_garbage = on_garbage  #: the callback of the references that ``begin`` is given

    def begin(self, operation: T, coroutine: Running) -> None:
        self.running[operation] = coroutine

    def end(self, operation: T) -> None:
        self.running.pop(operation, None)

    def __contains__(self, operation: object) -> bool:
        reference = self.running.get(operation)  # type: ignore[arg-type]
        return reference is not None and _runs(reference())

    def all(self) -> list[T]:
        """Those under way."""
        # A list of the keys is made atomically. One of the items is not: it creates tuples, so the garbage collector
        # may run, and with it finalisers that end operations.
        return [operation for operation in list(self.running) if operation in self]

    def interrupted(self) -> list[T]:
        """Those that were interrupted in their clean-up."""
        return [operation for operation in list(self.running) if self._was_interrupted(operation)]

    def _was_interrupted(self, operation: T) -> bool:
        # Another thread may end it at this moment. It ends the operation first, and then the coroutine: so one that is
        # still known after its coroutine is over was interrupted.
        reference = self.running.get(operation)
        if reference is None or _runs(reference()):
            return False
        return self.running.get(operation) is reference

    def __bool__(self) -> bool:
        return bool(self.running) and bool(self.all())


def _runs(call: Coroutine[Any, Any, Any] | Call | None) -> bool:
    if call is None or call.__class__ is Call:
        return call is not None
    return cast("CoroutineType[Any, Any, Any]", call).cr_frame is not None
