"""A client of registers, at the port: one session of an engine, on the blocking runtime."""

from __future__ import annotations

import secrets
import uuid
from types import TracebackType
from typing import Any, Final, Self

from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Claim, Granted, SimpleAttempt
from holdfast.engines.registers import Cell, Guard, Listener, Look, RegisterKey, Stale
from tests.support.register_contract import engine_at

TIMEOUT: Final = 20.0


class RegisterClient:
    def __init__(self, url: str) -> None:
        self.session: Any = engine_at(url).session(BLOCKING)
        self._attempt: SimpleAttempt | None = None

    @property
    def registers(self) -> Any:
        return self.session.registers

    def hold(self, name: str) -> Guard:
        """Acquire the lock, which is free."""
        self._attempt = SimpleAttempt(Claim(name, f"{uuid.uuid4()}:{secrets.randbits(63)}", 30.0))
        granted = run(self.session.acquire(self._attempt, TIMEOUT))
        assert isinstance(granted, Granted)
        return Guard(granted.token, self._attempt.owner)

    def release(self) -> None:
        assert self._attempt is not None
        run(self.session.release(self._attempt, TIMEOUT))

    def load(self, key: RegisterKey, guard: Guard, timeout: float = TIMEOUT) -> Cell | Stale:
        return run(self.registers.load(key, guard, timeout))  # type: ignore[no-any-return]

    def store(
        self, key: RegisterKey, guard: Guard, version: int, timeout: float = TIMEOUT, **changes: Any
    ) -> int | Stale:
        return run(self.registers.store(key, guard, version, timeout, **changes))  # type: ignore[no-any-return]

    def look(self, key: RegisterKey, waiter: str) -> Look:
        return run(self.registers.look(key, waiter, TIMEOUT))  # type: ignore[no-any-return]

    def peek(self, key: RegisterKey) -> Cell:
        return run(self.registers.peek(key, TIMEOUT))  # type: ignore[no-any-return]

    def swap(self, key: RegisterKey, version: int, value: bytes, timeout: float = TIMEOUT) -> Cell:
        return run(self.registers.swap(key, version, value, timeout))  # type: ignore[no-any-return]

    def armed(self, key: RegisterKey, waiter: str | None) -> Listener:
        listener: Listener = self.registers.listener(key, waiter)
        run(listener.arm())
        return listener

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run(self.session.close())
