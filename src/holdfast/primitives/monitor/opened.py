"""The variables of a monitor while an operation runs. They belong to the hold: all its operations see the same ones."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from holdfast._core.core import Core
from holdfast._core.hold import Hold
from holdfast.engines.registers import RegisterKey
from holdfast.primitives import waiting
from holdfast.primitives.deferred_store import defer
from holdfast.primitives.guarded_register import GuardedRegister, registers_of
from holdfast.primitives.monitor.state import Schema


class Savepoint(NamedTuple):
    """What an inner operation found: restored if it raises."""

    token: int
    values: dict[str, Any]
    register: object


class Opened:
    """The variables of one monitor under one hold."""

    def __init__(self, core: Core, hold: Hold, register: GuardedRegister, schema: Schema, max_bytes: int) -> None:
        self._core = core
        self.hold = hold
        self.register = register
        self._schema = schema
        self._max_bytes = max_bytes
        self.values: dict[str, Any] = {}
        self._read()

    def _read(self) -> None:
        self.values = self._schema.decode(self.register.value, self.hold.policy.name)

    def savepoint(self) -> Savepoint:
        return Savepoint(self.hold.token, copy.deepcopy(self.values), self.register.savepoint())

    def restore(self, found: Savepoint) -> None:
        """An inner operation has raised. After a wait, what was loaded then is what it goes back to."""
        if found.token == self.hold.token:
            self.values = found.values
            self.register.restore(found.register)
        else:
            self.discard()

    def discard(self) -> None:
        """The operation has raised: everything is as it was loaded, and no notify takes effect."""
        self.register.discard()
        if self.register.loaded:
            self._read()

    def _changed(self) -> bytes | None:
        """The variables as they are to be stored; None if they are stored already."""
        data = self._schema.encode(self.values, self.hold.policy.name, self._max_bytes)
        return None if data == self.register.value else data

    async def store(self) -> None:
        """The operation ends: the variables, its notifies, and the end of its own waiting take effect in one step.

        Its lease is about to be released: perhaps that is the same step.
        """
        data = self._changed()
        self.register.leave_queue()
        if (data is not None or self.register.changed) and not defer(self.register, data):
            await self.register.store(self.register.written(data))

    async def wait(self, condition: str, timeout: float | None) -> bool:
        """See ``waiting.wait``. The variables are stored before, and loaded afterwards."""
        woken = await waiting.wait(self._core, self.register, condition, timeout, self._changed())
        self._read()
        return woken


class Opening:
    """One call of an operation."""

    def __init__(self, core: Core, hold: Hold, key: RegisterKey, schema: Schema, max_bytes: int) -> None:
        self._core = core
        self._hold = hold
        self._key = key
        self._schema = schema
        self._max_bytes = max_bytes
        self._opened: Opened | None = None
        self._savepoint: Savepoint | None = None  # of an inner call

    async def begin(self) -> Opened:
        register = registers_of(self._core, self._hold).register(self._key)
        found = register.content
        if isinstance(found, Opened):
            self._savepoint = found.savepoint()
            self._opened = found
            return found
        await register.load()
        self._opened = opened = Opened(self._core, self._hold, register, self._schema, self._max_bytes)
        register.content = opened
        return opened

    async def end(self) -> None:
        """It has returned. It has taken effect when its lease is released without an error."""
        if self._opened is not None and self._savepoint is None:
            await self._opened.store()

    def fail(self) -> None:
        """It has raised. No I/O: a notification that its caller had is passed on when the lock is released."""
        opened = self._opened
        if opened is None or not self._hold.held:
            return
        if self._savepoint is not None:
            opened.restore(self._savepoint)
        else:
            opened.discard()

    def close(self) -> None:
        """Whatever became of it: the next operation loads the variables."""
        if self._opened is not None and self._savepoint is None:
            self._opened.register.content = None
