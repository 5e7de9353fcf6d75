"""What the Redis engines remember about a claim."""

from __future__ import annotations

from holdfast.engines.base import Attempt, Claim
from holdfast.engines.redis import modes
from holdfast.engines.redis.dialect.leases import tombstone_for
from holdfast.engines.redis.dialect.requests import Call, Publish


class RedisAttempt(Attempt):
    """An attempt at one server, or at a cluster. It may continue under another owner than its claim's."""

    __slots__ = ("leftovers", "owner", "under", "waiter")
    owner: str

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.unresolved = False
        self.owner = claim.owner
        self.waiter: str | None = None  #: its id in the queue
        self.under: RedisAttempt | None = None  #: of a read: the caller's own write, inside of which it is
        self.leftovers: tuple[str, ...] = ()  #: earlier owners that may still hold something: withdraw them too

    @property
    def queued(self) -> bool:
        return self.waiter is not None

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
    return modes.release(attempt, owner, publish, tombstone=tombstone_for(attempt.claim.ttl), waiter=attempt.waiter)
