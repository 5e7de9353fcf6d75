"""A bounded buffer whose items and waiters are one register: what a monitor is made of, without its face."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import holdfast
from holdfast._runtime.blocking import run
from holdfast.engines.registers import RegisterKey
from holdfast.primitives import condition_queue, waiting
from holdfast.primitives.condition import held_by_caller
from holdfast.primitives.guarded_register import registers_of

ROOM: Final = 10


class Buffer:
    """``put`` waits for room, ``take`` for an item. It also remembers each consumer's last item: a consumer that is
    killed after its ``take`` cannot tell."""

    def __init__(self, locks: holdfast.Client, name: str) -> None:
        self._locks = locks
        self._lock = locks.lock(name)
        self._key = RegisterKey(self._lock._policy.key, "monitor", durable=True)

    def put(self, item: int) -> None:
        self._operate("not_full", lambda state: len(state["items"]) < ROOM, lambda state: state["items"].append(item))

    def take(self, consumer: str, meanwhile: Callable[[], None]) -> int:
        """``meanwhile`` is called while the lock is held."""

        def take(state: dict[str, Any]) -> int:
            meanwhile()
            state["taken"][consumer] = state["items"].pop(0)
            return int(state["taken"][consumer])

        return int(self._operate("not_empty", lambda state: bool(state["items"]), take))

    def content(self) -> tuple[list[int], dict[str, int]]:
        """The items, and each consumer's last one."""
        registers = self._locks._open().session.registers
        assert registers is not None
        state = _parsed(run(registers.peek(self._key, 10.0)).value)
        return state["items"], state["taken"]

    def _operate(
        self, awaited: str, ready: Callable[[dict[str, Any]], bool], change: Callable[[dict[str, Any]], Any]
    ) -> Any:
        async def operate() -> Any:
            core = self._locks._open()
            register = registers_of(core, held_by_caller(core, self._lock._policy)).register(self._key)
            await register.load()
            while not ready(state := _parsed(register.value)):
                await waiting.wait(core, register, awaited, None, register.value)
            result = change(state)
            notified = "not_full" if awaited == "not_empty" else "not_empty"
            register.apply(condition_queue.notify(register.queue, notified, 1, register.mine))
            register.apply(condition_queue.settle(register.queue, register.mine))
            register.mine = set()
            await register.store(value=json.dumps(state).encode())
            return result

        with self._lock:
            return run(operate())


def _parsed(value: bytes) -> dict[str, Any]:
    return json.loads(value) if value else {"items": [], "taken": {}}
