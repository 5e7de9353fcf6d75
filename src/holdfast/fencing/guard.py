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
from holdfast.fencing.turns import GuardEntry

_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.02


class Gate(Protocol):
    """Access to one resource for one guard: the fence's own lock, and the stored token."""

    #: Whether load and store may wait for a disk, so that an event loop must not run them.
    slow: bool

    def try_lock(self, entry: GuardEntry) -> bool:
        """Take the lock if it is free. Never waits."""

    def unlock(self, entry: GuardEntry) -> None:
        """Release the lock if ``entry`` has it, else do nothing. May be repeated, also after an interruption."""

    def load(self) -> Bearer | None: ...

    def store(self, seen: Bearer) -> None:
        """Store ``seen`` atomically, before the guard is entered."""


class Guard:
    """Holds the fence's lock on one resource from the check of the token until the write is done.

    An interrupted guard leaves nothing locked: ``_leave`` unlocks it in any state. It is called when ``__enter__``
    fails, and again if a signal comes while ``__exit__`` runs. If a signal comes before the first instruction of
    ``__exit__``, the fence is unlocked when the guard becomes garbage. (Not by ``__del__``: it would run for each
    guard, and Python ignores what a signal handler raises there.)

    Waiting is by retrying, in sync and async. It is rare: while the lock in front of the fence works, there is no other
    caller. A blocking flock() would be worse: the kernel may grant it to a process that was frozen while it waited,
    which then keeps all others out; and a thread that is blocked in flock() cannot be cancelled.
    """

    __slots__ = ("__weakref__", "_bearer", "_entry", "_gate", "_resource", "_timeout", "_using")

    def __init__(self, gate: Gate, resource: str, bearer: Bearer, timeout: float | None) -> None:
        self._entry: GuardEntry | None = None  # inside, or trying to enter
        self._using = threading.RLock()  # protects the gate: unlocking waits for a store on another thread
        self._gate = gate
        self._resource = resource
        self._bearer = bearer
        self._timeout = timeout

    def __enter__(self) -> None:
        entry = GuardEntry.of(self, self._gate.unlock)
        try:
            for pause in self._attempts(entry):
                time.sleep(pause)
            self._admit(entry)
        except BaseException:
            self._leave(entry)
            raise

    async def __aenter__(self) -> None:
        entry = GuardEntry.of(self, self._gate.unlock, asyncio.current_task())
        try:
            for pause in self._attempts(entry):
                await asyncio.sleep(pause)  # cancelled here: nothing is held between two attempts
            if self._gate.slow:
                await disk.run(partial(self._admit, entry))
            else:
                self._admit(entry)
        except BaseException:
            self._leave(entry)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        entry = self._entry
        try:
            self._leave(entry)
            if error is None and entry is not None and entry.process != os.getpid():
                raise UsageError(
                    f"the guard on {self._resource!r} belongs to the parent process: a fork does not inherit it, so "
                    "what the child wrote was not guarded. Raise a guard in the child"
                )
        except BaseException:
            self._leave(entry)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.__exit__(kind, error, traceback)
        except BaseException:
            self._leave(self._entry)  # a signal may come before the first instruction of __exit__
            raise

    def _attempts(self, entry: GuardEntry) -> Iterator[float]:
        """Try until the lock is taken; yield how long to pause before the next attempt."""
        if self._entry is not None:
            raise UsageError("this guard is raised already: call fence.guard() for each 'with'")
        self._entry = entry
        until = None if self._timeout is None else clock.now() + self._timeout
        pause = _FIRST_PAUSE
        while not self._gate.try_lock(entry):
            if until is not None and clock.now() >= until:
                raise AcquireTimeout(
                    f"the fence of {self._resource!r} stayed occupied for {self._timeout:g} s: another caller is "
                    "inside its guard, perhaps frozen",
                    name=self._resource,
                    timeout=self._timeout or 0.0,
                )
            yield pause * random.uniform(0.5, 1.0)  # jitter: processes that started together must not stay in step
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _admit(self, entry: GuardEntry) -> None:
        with self._using:
            if self._entry is entry and admit(self._resource, self._gate.load(), self._bearer):
                self._gate.store(self._bearer)

    def _leave(self, entry: GuardEntry | None) -> None:
        """Leave the guard, if ``entry`` is inside. May be repeated, also after an interruption."""
        if entry is None or entry.process != os.getpid():
            return
        # An event loop may be interrupted while another thread stores this guard's token. If the gate was unlocked
        # before that ends, the thread could overwrite a newer token: so wait for it, or prevent its start.
        with self._using:
            self._gate.unlock(entry)
            if self._entry is entry:
                self._entry = None
