"""The engine port, beside ``base``: what the session of an engine may be able to do, for some of the primitives."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from holdfast.engines.base import A, A_contra, Busy, Claim, DirectSession, Found, Granted, Mode, Session
from holdfast.engines.registers import Listener


@runtime_checkable
class WatchableSession(Protocol):
    """The session of an engine that pushes changes of a lock also to callers that do not wait for it. Optional."""

    def watch(self, name: str) -> Listener:
        """Is woken when the lock ``name`` may have another holder, or none. No I/O.

        Some changes may come without a push, such as the end of a lease: the caller looks from time to time.
        """


class Gathering(NamedTuple):
    """The members of a barrier. ``opened``: identifies the round that is open; None: they gather for the next one.
    ``parties``: how many there must be, as the first of them says; members that say otherwise are left out."""

    opened: int | None
    members: Sequence[str]
    parties: int | None
    present: bool = True  #: the attempt that asks is a member


@runtime_checkable
class BarrierSession(WatchableSession, Protocol[A_contra]):
    """The session of an engine where barriers are a kind of their own. Optional.

    A claim on one is granted when no round is open: so each member that is there when a round is opened is a member of
    that round. All requests may be repeated.
    """

    async def gathering(self, name: str, attempt: A_contra | None, timeout: float) -> Gathering:
        """The members now, up to date, as ``attempt`` sees them."""

    async def open_round(self, attempt: A_contra, members: Sequence[str], timeout: float) -> None:
        """Open a round, if ``attempt`` and all ``members`` still are members, and none is open."""

    async def end_round(self, name: str, timeout: float) -> None:
        """End the open round, if it has no members."""


class SharedSession(Session[A], Protocol[A]):
    """The session of an engine that has read-write locks (``Guarantees.shared``)."""

    def nested(self, claim: Claim, under: A) -> A:
        """A new attempt at ``claim``, which is to read, by the caller that holds the name for writing as ``under``.

        It is granted at once if that still holds, also before writers that wait. When the write ends first, the read
        stays (a downgrade), and no writer comes in between. No I/O.
        """


class SharedDirectSession(DirectSession[A], Protocol[A]):
    """A direct session that serves the same of read-write locks and semaphores: the first request of a claim that is
    under no other (``nested``), and its release. Optional."""

    def acquire_shared_directly(
        self, mode: Mode, name: str, owner: str, description: bytes, ttl: float, timeout: float
    ) -> int | Granted | Busy | Awaitable[Any] | None:
        """As ``acquire_directly``; Granted: with the size of the semaphore."""

    def shared_acquired(self, mode: Mode, reply: Any) -> int | Granted | Busy | None:
        """What an awaited reply to ``acquire_shared_directly`` means."""

    def release_shared_directly(
        self, mode: Mode, name: str, owner: str, timeout: float
    ) -> Found | Awaitable[Any] | None:
        """As ``release_directly``, and its awaited reply is read by ``released`` too."""


class SemaphoreSession(Session[A], Protocol[A]):
    """The session of an engine that has semaphores (``Guarantees.permits``)."""

    async def resize(self, name: str, size: int, timeout: float, request: str = "") -> None:
        """The semaphore ``name`` has ``size`` permits from now on; it is created if there is none. May be repeated.

        ``request``: the same in all repeats of one request, and in no other. Where a reply can be lost, an engine that
        can remembers it, so that a repeat does not undo a newer resize.

        Permits that are held stay held: if they are more than ``size``, none is granted until enough were released.
        Waiters that can be granted now, or never any more, are woken.
        """


class TransferSession(Session[A], Protocol[A]):
    """The session of an engine whose holds can be given to another owner (``Guarantees.detach``)."""

    async def transfer(self, attempt: A, from_owner: str, timeout: float) -> Granted | Found:
        """If ``from_owner`` holds the name: from this step on, ``attempt`` does, with a new token and its own ttl.

        The expiry is never shortened. Repeated with the same attempt, also after a lost reply: the same answer. If
        neither of the two holds the name: GONE (free) or STOLEN (another owner has it), and nothing changes. The
        attempt's mode is EXCLUSIVE. A late duplicate must not take effect after the attempt was withdrawn.

        An attempt whose claim is ``detached`` is what a ticket stands for. No client renews it, and it must not end
        with the process that made it, only with its ttl.
        """
