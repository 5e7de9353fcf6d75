"""What the Redis engines remember about a claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engines.base import Attempt, Claim
from holdfast.engines.redis import modes
from holdfast.engines.redis.dialect.leases import tombstone_for
from holdfast.engines.redis.dialect.requests import Call, Publish

if TYPE_CHECKING:
    from holdfast.engines.redis.connections.channel import Watch


class RedisAttempt(Attempt):
    """An attempt at one server, or at a cluster. It may continue under another owner than its claim's."""

    __slots__ = ("confirmed", "entry", "joined", "leftovers", "owner", "seat", "under", "waiter", "waits_until")
    owner: str

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.unresolved = False
        self.owner = claim.owner
        self.waiter: str | None = None  #: its id in the queue
        self.waits = False
        self.entry: bytes | None = None  #: what it has joined the queue with, if a release may hand the lock over to it
        self.seat: Watch | None = None  #: where that is pushed
        #: When the last request was sent that was answered at the seat. What was pushed before that answer has arrived
        #: before it, for both came over one connection: so what arrives later was handed over later.
        self.confirmed = 0.0
        self.joined = 0.0  #: when the request was sent by which it has joined
        self.waits_until = 0.0  #: nearly every waiter is handed the lock by then: it need not do more than wait
        self.under: RedisAttempt | None = None  #: of a read: the caller's own write, inside of which it is
        self.leftovers: tuple[str, ...] = ()  #: earlier owners that may still hold something: withdraw them too

    @property
    def queued(self) -> bool:
        return self.waiter is not None

    def abandon(self) -> None:
        """Give up the seat, but not what is in the queue."""
        seat, self.seat = self.seat, None
        if seat is not None:
            seat.close()

    def left_queue(self) -> None:
        """It has no entry in the queue any more."""
        self.waiter = self.entry = None

    @property
    def withdrawn_for(self) -> float:
        # A request to join the queue that arrives late makes an entry, to which a release would hand the lock over.
        ttl = self.claim.ttl
        return ttl if self.entry is None else tombstone_for(ttl)

    @property
    def has_leftovers(self) -> bool:
        return bool(self.leftovers)

    def reissue(self, *, lingers: bool) -> None:
        """Continue under a new owner, after the present one was withdrawn.

        The old one has left tombstones, and a late duplicate of its withdrawal must not hit what is granted later.
        ``lingers``: not everything of it could be withdrawn.
        """
        if lingers:
            self.leftovers += (self.owner,)
            self.unresolved = True
        client, _, number = self.owner.partition(":")
        self.owner = f"{client}:{(int(number) + 1) % 2**63}"  # numbers are random and sparse: the next one is free


class RedlockAttempt(RedisAttempt):
    """An attempt at several servers."""

    __slots__ = ("freed", "token")

    def __init__(self, claim: Claim) -> None:
        super().__init__(claim)
        self.token: int | None = None  #: as granted, for a server that joins late; None when the release has begun
        self.freed: frozenset[tuple[str, int]] = frozenset()  #: (owner, server) that need not be asked again


def withdrawal(attempt: RedisAttempt, owner: str, publish: Publish) -> Call:
    """Remove what ``owner``, the attempt's present one or an earlier one, holds, and the attempt's place in the queue.
    No late duplicate takes effect afterwards."""
    tombstone = tombstone_for(attempt.claim.ttl)
    return modes.release(attempt, owner, publish, tombstone=tombstone, waiter=attempt.waiter, entry=attempt.entry)
