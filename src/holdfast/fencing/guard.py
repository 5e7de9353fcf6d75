"""The guard: what ``fence.guard()`` returns, for ``with`` and for ``async with``."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from types import TracebackType
from typing import Final, Protocol

from holdfast._runtime import clock
from holdfast.errors import AcquireTimeout, UsageError
from holdfast.fencing import disk
from holdfast.fencing.rule import Bearer, admit
from holdfast.fencing.turns import Visitor

_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.02


class Gate(Protocol):
    """The way to one resource, for one guard: the fence's own lock, and what is remembered behind it."""

    #: load and store may wait for a disk, so an event loop must not run them.
    slow: bool

    def try_lock(self, visitor: Visitor) -> bool:
        """Take the lock, at once or not at all."""

    def unlock(self, visitor: Visitor) -> None:
        """Give the lock back, if ``visitor`` has it; else no effect. May be repeated, also after it was interrupted."""

    def load(self) -> Bearer | None: ...

    def store(self, seen: Bearer) -> None:
        """Remember ``seen``, whole or not at all, before anybody is let through."""


class Guard:
    """Holds the fence's lock on one resource from the check of the token until the write is done.

    An interrupted guard leaves nothing locked: whatever its state is, ``_leave`` brings it back to "outside". It is
    called on every failed way through ``__enter__``, and again if a signal comes while ``__exit__`` does it. If one
    comes before the first instruction of ``__exit__``, the fence is unlocked when the guard is garbage. (Not by
    ``__del__``: it would run for each guard, and Python swallows what a signal handler raises there.)

    Waiting is by trying again, in both colours. It is the exception: while the lock in front of the fence works, nobody
    else is here. A queue in the kernel would be worse than slow: it grants the lock to a process that was frozen while
    it waited, which then keeps everybody out; and a thread that blocks in flock() cannot be cancelled.
    """

    __slots__ = ("__weakref__", "_bearer", "_gate", "_resource", "_timeout", "_using", "_visitor")

    def __init__(self, gate: Gate, resource: str, bearer: Bearer, timeout: float | None) -> None:
        self._visitor: Visitor | None = None  # inside, or about to be
        self._using = threading.RLock()  # the gate: unlocking waits for a write that is under way on another thread
        self._gate = gate
        self._resource = resource
        self._bearer = bearer
        self._timeout = timeout

    def __enter__(self) -> None:
        visitor = Visitor.of(self, self._gate.unlock)
        try:
            for pause in self._attempts(visitor):
                time.sleep(pause)
            self._admit(visitor)
        except BaseException:
            self._leave(visitor)
            raise

    async def __aenter__(self) -> None:
        visitor = Visitor.of(self, self._gate.unlock, asyncio.current_task())
        try:
            for pause in self._attempts(visitor):
                await asyncio.sleep(pause)  # cancelled here: nothing is held between two attempts
            if self._gate.slow:
                await disk.run(partial(self._admit, visitor))
            else:
                self._admit(visitor)
        except BaseException:
            self._leave(visitor)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        visitor = self._visitor
        try:
            self._leave(visitor)
            if error is None and visitor is not None and visitor.process != os.getpid():
                raise UsageError(
                    f"the guard on {self._resource!r} belongs to the parent process: a fork does not inherit it, so "
                    "what the child wrote was not guarded. Raise a guard in the child"
                )
        except BaseException:
            self._leave(visitor)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.__exit__(kind, error, traceback)
        except BaseException:
            self._leave(self._visitor)  # a signal may come before the first instruction in there
            raise

    def _attempts(self, visitor: Visitor) -> Iterator[float]:
        """Try until the lock is ours; yield how long to pause before the next attempt."""
        if self._visitor is not None:
            raise UsageError("this guard is raised already: ask the fence for one guard for each 'with'")
        self._visitor = visitor
        until = None if self._timeout is None else clock.now() + self._timeout
        pause = _FIRST_PAUSE
        while not self._gate.try_lock(visitor):
            if until is not None and clock.now() >= until:
                raise AcquireTimeout(
                    f"the fence of {self._resource!r} stayed occupied for {self._timeout:g} s: somebody is in the "
                    "middle of a guarded write, or frozen there",
                    name=self._resource,
                    timeout=self._timeout or 0.0,
                )
            yield pause * random.uniform(0.5, 1.0)  # so that processes that came together do not stay in step
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _admit(self, visitor: Visitor) -> None:
        with self._using:
            if self._visitor is visitor and admit(self._resource, self._gate.load(), self._bearer):
                self._gate.store(self._bearer)

    def _leave(self, visitor: Visitor | None) -> None:
        """May be repeated, also after it was interrupted; no effect for a visitor that is not inside."""
        if visitor is None or visitor.process != os.getpid():
            return
        # An event loop may be interrupted while another thread stores our token. If the gate was unlocked now, that
        # thread could replace a newer token by ours: so wait for it, or keep it from beginning.
        with self._using:
            self._gate.unlock(visitor)
            if self._visitor is visitor:
                self._visitor = None
