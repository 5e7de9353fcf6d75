"""Registers: small guarded values beside a lock. What conditions, monitors, latches and barriers are built on.

A register has a key: the name of a lock, as the engine knows it, and a part (``"monitor"``, ``"condition:full"``). It
lives where the lock lives: in the same slot, file or ensemble. It consists of a value, of a queue of waiters, which is
plain text (see :mod:`.waiter_queue`), and of a version, which grows by one with each change. A register that was never
written has an empty value, an empty queue and version 0.

A register is guarded by the lock. The guard of a hold is its fencing token and its owner. The register remembers the
largest guard that it has seen, and refuses every smaller one: a holder whose lease has ended cannot change what its
successor has read.

A waiter is *present* for ``PRESENCE`` seconds after each of its own looks. That decides who is passed over, never who
may write.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

#: For how long a look makes a waiter present, in seconds. Waiters look at least every second or two.
PRESENCE: Final = 5.0
#: The part of a monitor: its variables, and the waiters of its conditions. It is durable.
MONITOR: Final = "monitor"


class RegisterKey(NamedTuple):
    """Which register: that of the lock ``name`` (the engine's name), for one purpose.

    ``durable``: the value is the user's data. It never expires, and what ``store`` has confirmed survives whatever the
    engine survives. Other registers may be forgotten ``token_ttl`` after their last use.
    """

    name: str
    part: str
    durable: bool = False


class Guard(NamedTuple):
    """The hold under which a register is read or written. Guards are ordered by token; equal tokens of different owners
    are different guards, and neither is accepted after the other."""

    token: int
    owner: str


class Cell(NamedTuple):
    """The content of a register. ``present``: the waiters that have looked at it in the last ``PRESENCE`` seconds."""

    value: bytes = b""
    queue: str = ""
    version: int = 0
    present: frozenset[str] = frozenset()


class Stale(NamedTuple):
    """Refused: the register has seen a later guard (``token`` is that of the guard it has), or it has another version
    than the caller has read."""

    token: int
    version: int


class Standing(enum.Enum):
    """How a waiter stands in the queue of a register."""

    WAITING = "waiting"
    NOTIFIED = "notified"
    NOT_QUEUED = "not queued"


class Look(NamedTuple):
    """What a waiter learns about itself. ``orphan``: a waiter of its condition was notified and is gone, so the
    notification must be passed on. ``rank``: how many present waiters of its condition wait before it. It decides who
    does that: without an orphan an engine may answer 0, and of many it may count the first few only. Of many that were
    notified it may look at the first few only, too: these leave the queue, or become absent."""

    standing: Standing
    rank: int = 0
    orphan: bool = False


class Listener(Protocol):
    """Waits for a wake-up through a register. One caller uses it."""

    async def arm(self) -> None:
        """From here on no wake-up is missed. Raises RequestFailed."""

    async def wait(self, until: float) -> None:
        """Return when it was woken after ``arm``, or since the last ``wait`` returned; at ``until`` at the latest.

        ``until`` is on the runtime's clock. Spurious returns are allowed, and a wake-up may be lost with a connection:
        the caller looks again every second or two. Never raises RequestFailed.
        """

    def close(self) -> None:
        """Drop local resources, without I/O. May be repeated. Also after a cancellation."""


class Registers(Protocol):
    """The registers of one engine, on one runtime. Each method raises RequestFailed and EngineRefused as those of a
    Session do, and may be repeated with the same arguments after a lost reply."""

    async def load(self, key: RegisterKey, guard: Guard, timeout: float) -> Cell | Stale:
        """In one step: refuse if the register has seen a later guard, or an equal token of another owner; remember
        ``guard``; read."""

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
        replicas: int = 0,
    ) -> int | Stale:
        """Write what is not None if guard *and* version are still those of the last load; the new version.

        Both are compared: a late duplicate of an earlier store under the same guard is refused. ``join`` makes a waiter
        present, and ``wake`` wakes waiters, in the same step. ``replicas``: how many must have it before the answer.

        Repeated after a lost reply it may answer ``Stale`` with the caller's own token and ``version + 1``: the first
        one took effect.
        """

    async def look(self, key: RegisterKey, waiter: str, timeout: float) -> Look:
        """How ``waiter`` stands in the queue; it is present for ``PRESENCE`` more seconds. Needs no guard.

        A thousand waiters may look once in two seconds: the answer is small, and the work little.
        """

    async def peek(self, key: RegisterKey, timeout: float) -> Cell:
        """Read without a guard: a snapshot, perhaps of a change that another holder is about to replace."""

    async def swap(self, key: RegisterKey, version: int, value: bytes, timeout: float) -> Cell:
        """Write ``value`` if the version is still ``version``, without a guard; the content afterwards.

        It wakes every listener for all changes. The caller finds out whether its write took effect by what it wrote.
        """

    def listener(self, key: RegisterKey, waiter: str | None) -> Listener:
        """For the wake-ups of ``waiter``; None: for every change of the register. No I/O."""
