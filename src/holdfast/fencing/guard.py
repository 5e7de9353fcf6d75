"""The guard: what ``fence.guard()`` returns, for ``with`` and for ``async with``."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
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

    def unlock(self) -> None: ...

    def load(self) -> Bearer | None: ...

    def store(self, seen: Bearer) -> None:
        """Remember ``seen``, whole or not at all, before anybody is let through."""


class Guard:
    """Holds the fence's lock on one resource from the check of the token until the write is done.

    Waiting is by trying again, in both colours. It is the exception: while the lock in front of the fence works, nobody
    else is here. A queue in the kernel would be worse than slow: it grants the lock to a process that was frozen while
    it waited, which then keeps everybody out; and a thread that blocks in flock() cannot be cancelled.
    """

    __slots__ = ("_bearer", "_gate", "_inside", "_resource", "_timeout")

    def __init__(self, gate: Gate, resource: str, bearer: Bearer, timeout: float | None) -> None:
        self._gate = gate
        self._resource = resource
        self._bearer = bearer
        self._timeout = timeout
        self._inside: int | None = None  # the pid that entered

    def __enter__(self) -> None:
        for pause in self._attempts(Visitor.blocking()):
            time.sleep(pause)
        try:
            self._admit()
        except BaseException:
            self._leave()
            raise

    async def __aenter__(self) -> None:
        for pause in self._attempts(Visitor.current_task()):
            await asyncio.sleep(pause)  # cancelled here: nothing is held between two attempts
        try:
            if self._gate.slow:
                await disk.run(self._admit)
            else:
                self._admit()
        except BaseException:
            self._leave()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._inside == os.getpid():
            self._leave()
        elif error is None:
            raise UsageError(
                f"the guard on {self._resource!r} belongs to the parent process: a fork does not inherit it, so what "
                "the child wrote was not guarded. Raise a guard in the child"
            )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def _attempts(self, visitor: Visitor) -> Iterator[float]:
        """Try until the lock is ours; yield how long to pause before the next attempt."""
        if self._inside is not None:
            raise UsageError("this guard is raised already: ask the fence for one guard for each 'with'")
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
        self._inside = os.getpid()

    def _admit(self) -> None:
        if admit(self._resource, self._gate.load(), self._bearer):
            self._gate.store(self._bearer)

    def _leave(self) -> None:
        self._inside = None
        self._gate.unlock()
