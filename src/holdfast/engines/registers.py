"""Registers: small guarded values beside a lock. What conditions, monitors, latches and barriers are built on.

A register has a key: the name of a lock, as the engine knows it, and a part (``"monitor"``, ``"condition:full"``). It
lives where the lock lives: in the same slot, file or ensemble. It consists of a value, of a queue of waiters, which is
plain text (see :mod:`.waiter_queue`), and of a version, which grows by one with each change. A register that was never
written has an empty value, an empty queue and version 0.

A register is guarded by the lock. The guard of a hold is its fencing token and its owner. The register remembers the
largest guard that it has seen, and refuses every smaller one: a holder whose lease has ended cannot change what its
successor has read.

A waiter is *present* for ``PRESENCE`` seconds after each look that is made for it, by itself or by another waiter of
its client that knows it to run. That decides which waiter is passed over, never which claim may write.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from holdfast.engines.base import Found

#: For how long a look makes a waiter present, in seconds. One is made for each waiter every 1.25 s at least, so two
#: that are not answered do no harm. A notification that was taken by a waiter that dies is passed on after PRESENCE and
#: one such interval; after 0.75 s more if it hangs alone in a live process. That is 5.5 s together.
PRESENCE: Final = 3.5
#: The part of a monitor: its variables, and the waiters of its conditions. It is durable.
MONITOR: Final = "monitor"
#: The part of a latch. An engine may share its count with another library.
LATCH: Final = "latch"


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
    """The content of a register. ``present``: the waiters that have looked at it in the last ``PRESENCE`` seconds.
    An engine need not read them for a load that finds an empty queue."""

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
        the caller looks again every second. Never raises RequestFailed.
        """

    def close(self) -> None:
        """Drop local resources, without I/O. May be repeated. Also after a cancellation."""


class RegisterListener(Listener, Protocol):
    """The listener of a register, whose wait can be ended by another caller."""

    def end_wait(self) -> None:
        """The wait that is under way returns, or else the next one. A wake-up that comes meanwhile is not lost: the
        wait after that returns at once. For tasks of one loop: the wait of a thread may go on. No I/O that could block.
        """


class Registers(Protocol):
    """The registers of one engine, on one runtime. Each method raises RequestFailed and EngineRefused as those of a
    Session do, and may be repeated with the same arguments after a lost reply."""

    @property
    def fused(self) -> bool:
        """Whether they are FusedRegisters."""

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

        A thousand clients may look once a second: the answer is small, and the work little.
        """

    async def look_all(self, key: RegisterKey, waiters: Collection[str], timeout: float) -> Mapping[str, Look]:
        """The same for several waiters of this client, by one request. Those that are not in the answer are not in the
        queue."""

    async def peek(self, key: RegisterKey, timeout: float) -> Cell:
        """Read without a guard: a snapshot, perhaps of a change that another holder is about to replace."""

    async def swap(self, key: RegisterKey, version: int, value: bytes, timeout: float) -> Cell:
        """Write ``value`` if the version is still ``version``, without a guard; the content afterwards.

        It wakes every listener for all changes. The caller finds out whether its write took effect by what it wrote.
        """

    def listener(self, key: RegisterKey, waiter: str | None) -> RegisterListener:
        """For the wake-ups of ``waiter``; None: for every change of the register. No I/O."""


class FusedRegisters(Registers, Protocol):
    """Those of an engine that stores a register and releases its lock by one request."""

    async def store_and_release(
        self,
        attempt: Any,
        key: RegisterKey,
        guard: Guard,
        version: int,
        timeout: float,
        *,
        value: bytes | None = None,
        queue: str | None = None,
        wake: Collection[str] = (),
    ) -> Found | Stale | None:
        """As ``store``, and if that is not refused, as ``Session.release`` of ``attempt``: in one step.

        Stale: nothing was stored, and nothing released. Else it was stored. None: but the lock could not be released,
        so that is to be tried alone. Repeated after a lost reply, the answer is OURS if an earlier transmission took
        effect, also if holders of other clients have stored since; Stale if that is not known.
        """
