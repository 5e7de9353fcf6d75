"""A small value that several clients change by compare-and-swap, and wait for: what latches and barriers keep at the
engine.

It is the value of a register (:mod:`holdfast.engines.registers`) without a guard. A change is a pure function from the
old value to the new one. A reply may be lost after a change took effect: then the function is called with a value that
has it already, and must recognise its own operation. So each operation leaves a mark in the value.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Final

from holdfast._core import operators
from holdfast._core.core import Core
from holdfast.base_client import BaseClient
from holdfast.engines.registers import Cell, Listener, RegisterKey, Registers
from holdfast.errors import EngineRefused, UsageError

#: A waiter looks at least this often, in seconds, also if it was not woken: a wake-up may be lost with a connection.
_LOOKS_EVERY: Final = (1.0, 2.0)

#: The value after a change; None: nothing is to be changed.
Change = Callable[[Any], Any]


def check_registers(client: BaseClient, what: str, name: str) -> None:
    """UsageError if the engine of ``client`` cannot keep the state of a ``what``."""
    if not client._engine.guarantees.registers:
        raise UsageError(
            f"{what} {name!r}: {client._engine!r} has no registers, since it cannot keep one value that all clients "
            "see; use an engine whose guarantees include 'registers'",
            name=name,
        )


class SharedState:
    """The JSON value of one register. Its first value is None."""

    def __init__(self, core: Core, name: str, key: RegisterKey) -> None:
        self.core = core
        self._name = name  # the user's, for errors
        self._key = key
        registers: Registers | None = core.session.registers
        assert registers is not None  # see check_registers
        self._registers = registers

    async def read(self) -> Any:
        """The present value."""
        return self._value(await self._peek())

    async def change(self, change: Change) -> Any:
        """Apply ``change`` to the present value, in one step; the value afterwards. It may be called several times."""
        cell = await self._peek()
        while True:
            old = self._value(cell)
            new = change(old)
            if new is None:
                return old
            version, value = cell.version, json.dumps(new, separators=(",", ":")).encode()
            cell = await self._swap(version, value)
            if cell.version == version + 1 and cell.value == value:
                return new

    def listener(self) -> Listener:
        """Is woken by every change. The caller arms it before it looks, and closes it."""
        return self._registers.listener(self._key, None)

    async def arm(self, listener: Listener) -> None:
        """From here on no change is missed. Raises EngineUnavailable."""

        async def arm(timeout: float) -> None:
            await listener.arm()

        await operators.ask(self.core, arm, self._name)

    async def sleep(self, listener: Listener, deadline: float | None) -> bool:
        """Wait for a change, for a look that is due, or for ``deadline``. Whether there is time left."""
        now = self.core.front.now()
        until = now + random.uniform(*_LOOKS_EVERY)
        if deadline is not None:
            if now >= deadline:
                return False
            until = min(until, deadline)
        await listener.wait(until)
        return True

    async def _peek(self) -> Cell:
        return await operators.ask(self.core, lambda timeout: self._registers.peek(self._key, timeout), self._name)

    async def _swap(self, version: int, value: bytes) -> Cell:
        """May be repeated: a swap whose reply was lost finds another version, and its value if it took effect."""
        return await operators.ask(
            self.core, lambda timeout: self._registers.swap(self._key, version, value, timeout), self._name
        )

    def _value(self, cell: Cell) -> Any:
        if not cell.value:
            return None
        try:
            value = json.loads(cell.value)
        except ValueError as error:
            raise self.unreadable() from error
        return value

    def unreadable(self) -> EngineRefused:
        return EngineRefused(
            f"the state of {self._key.part} {self._name!r} at {self.core.engine!r} was not written by holdfast, or by "
            "another version of it; use another name",
            name=self._name,
        )
