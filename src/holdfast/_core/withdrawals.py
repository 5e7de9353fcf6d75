"""Pending withdrawals: attempts that must hold nothing, now or later. Pure bookkeeping: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast._core import retry
from holdfast.engines.base import Attempt

_NEVER: Final = float("inf")


@dataclass(slots=True)
class Withdrawal:
    """One attempt to withdraw: tried until ``until``, when the engine has forgotten it by itself."""

    attempt: Attempt
    until: float
    due: float = 0.0
    failures: int = 0


class Withdrawals:
    """The pending withdrawals of one client. Callers hold the core's lock."""

    def __init__(self) -> None:
        self._pending: dict[Attempt, Withdrawal] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, attempt: Attempt, until: float) -> None:
        """Withdraw ``attempt`` as soon as possible. What is known of earlier attempts stays."""
        known = self._pending.get(attempt)
        if known is None:
            self._pending[attempt] = Withdrawal(attempt, until)
        else:
            known.until, known.due = max(known.until, until), 0.0

    def next_due(self) -> float:
        return min((withdrawal.due for withdrawal in list(self._pending.values())), default=_NEVER)

    def due(self, now: float, most: int) -> list[Withdrawal]:
        """What is to be tried now, at most so many."""
        chosen = []
        for withdrawal in list(self._pending.values()):
            if withdrawal.due <= now:
                chosen.append(withdrawal)
                if len(chosen) == most:
                    break
        return chosen

    def done(self, withdrawal: Withdrawal) -> None:
        self._pending.pop(withdrawal.attempt, None)

    def failed(self, withdrawal: Withdrawal, now: float, dice: Callable[[], float]) -> None:
        """Try it again later, after others: one that cannot be done must not keep them. Or no more, at its time."""
        self._pending.pop(withdrawal.attempt, None)
        if now < withdrawal.until:
            withdrawal.failures += 1
            withdrawal.due = now + retry.pause(withdrawal.failures, dice)
            self._pending[withdrawal.attempt] = withdrawal

    def clear(self) -> None:
        self._pending.clear()
