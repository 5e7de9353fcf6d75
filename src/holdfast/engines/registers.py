"""Registers: small guarded values beside a lock. What conditions, monitors, latches and barriers will be built on.

No engine has them yet: ``Session.registers`` is None everywhere. The protocol is here so that an engine can be written
with it in mind. It is not complete: ``store`` wakes waiters, but no method waits for that yet.

A register has a key: the name of a lock, as the engine knows it, and a part (``"monitor"``, ``"condition:full"``). It
lives where the lock lives: in the same slot, file or ensemble. It consists of a value, of a queue of waiters, which is
plain text, and of a version, which grows by one with each change.

A register is guarded by the lock. The guard of a hold is its fencing token and its owner. The register remembers the
largest guard that it has seen, and refuses every smaller one: a holder whose lease has ended cannot change what its
successor has read.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import NamedTuple, Protocol


class RegisterKey(NamedTuple):
    """Which register: that of the lock ``name`` (the engine's name), for one purpose."""

    name: str
    part: str


class Guard(NamedTuple):
    """The hold under which a register is read or written."""

    token: int
    owner: str


class Cell(NamedTuple):
    """The content of a register. ``present``: the waiters that have looked at it within the last 5 seconds."""

    value: bytes
    queue: str
    version: int
    present: frozenset[str]


class Stale(NamedTuple):
    """Refused: the register has seen a later guard, or another version than the caller has read."""

    token: int
    version: int


class Standing(enum.Enum):
    """How a waiter stands in the queue of a register."""

    WAITING = "waiting"
    NOTIFIED = "notified"
    ABSENT = "absent"  # it has no entry


class Look(NamedTuple):
    """What a waiter learns about itself. ``rank``: how many present waiters are queued before it. ``orphan``: a waiter
    was notified and is gone, so the notification must be passed on."""

    standing: Standing
    rank: int
    orphan: bool


class Registers(Protocol):
    """The registers of one engine, on one runtime. Each method raises RequestFailed as those of a Session do."""

    async def load(self, key: RegisterKey, guard: Guard, timeout: float) -> Cell | Stale:
        """In one step: refuse if the register has seen a later guard, remember ``guard``, and read."""

    async def store(
        self,
        key: RegisterKey,
        guard: Guard,
        version: int,
        timeout: float,
        *,
        value: bytes | None = None,
        queue: str | None = None,
        join: str | None = None,
        wake: Collection[str] = (),
    ) -> int | Stale:
        """Write what is not None if guard *and* version are still those of the last load; the new version.

        Both are compared: a late duplicate of an earlier store under the same guard is refused. ``join`` makes a waiter
        present, and ``wake`` wakes waiters, in the same step.
        """

    async def look(self, key: RegisterKey, waiter: str, timeout: float) -> Look:
        """How ``waiter`` stands in the queue; it is present for 5 more seconds. Needs no guard."""

    async def peek(self, key: RegisterKey, timeout: float) -> Cell:
        """Read without a guard: a snapshot, perhaps of a change that another holder is about to replace."""

    async def swap(self, key: RegisterKey, version: int, value: bytes, timeout: float) -> Cell:
        """Write ``value`` if the version is still ``version``, without a guard; the content afterwards."""
