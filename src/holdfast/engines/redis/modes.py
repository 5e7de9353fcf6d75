"""Which script serves a claim: those of locks, of read-write locks or of semaphores. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.engines.base import EXCLUSIVE, Busy, Granted, Kind, Mode
from holdfast.engines.redis.dialect import grants, leases, permits, rwlocks
from holdfast.engines.redis.dialect.requests import Call, Opening, Publish

if TYPE_CHECKING:
    from holdfast.engines.redis.attempt import RedisAttempt


def is_lock(attempt: RedisAttempt) -> bool:
    """Whether it is at a lock with one owner."""
    return attempt.claim.mode.kind is Kind.LOCK


def acquire(attempt: RedisAttempt, counter_ttl: int, publish: Publish) -> Call:
    """For a claim on a read-write lock or a semaphore. (Those on locks have an encoder that remembers.)"""
    claim = attempt.claim
    if claim.mode.kind is Kind.SEMAPHORE:
        return permits.encode_acquire(claim, attempt.owner, attempt.waiter, counter_ttl, publish)
    under = None if attempt.under is None else attempt.under.owner
    return rwlocks.encode_acquire(claim, attempt.owner, attempt.waiter, counter_ttl, under)


def acquire_directly(
    mode: Mode, name: str, owner: str, description: bytes, ttl: float, counter_ttl: int, publish: Publish
) -> tuple[Opening, bytes]:
    """The first request of a claim on a read-write lock or a semaphore, as bytes, and what it begins with."""
    if mode.kind is Kind.SEMAPHORE:
        keys = permits.permit_keys_of(name)
        packed = permits.encode_acquire_directly(keys, mode, owner, ttl, description, counter_ttl, publish)
        return keys.acquire, packed
    names = rwlocks.rw_keys_of(name)
    return names.acquire, rwlocks.encode_acquire_directly(names, mode.label, owner, ttl, description, counter_ttl)


def release_directly(mode: Mode, name: str, owner: str, publish: Publish) -> tuple[Opening, bytes]:
    """Its release, which was not sent before."""
    if mode.kind is Kind.SEMAPHORE:
        keys = permits.permit_keys_of(name)
        return keys.release, permits.encode_release_directly(keys, mode.permits, owner, publish)
    names = rwlocks.rw_keys_of(name)
    return names.release, rwlocks.encode_release_directly(names, name, mode.label, owner, publish)


def answer(attempt: RedisAttempt, reply: Any) -> Granted | Busy:
    """What the reply to an acquire means."""
    if attempt.claim.mode.kind is Kind.SEMAPHORE:
        return permits.decode_acquire(attempt.claim, reply)
    return grants.decode_acquire(reply)


def release(
    attempt: RedisAttempt,
    owner: str,
    publish: Publish,
    *,
    tombstone: float | None,
    waiter: str | None = None,
    entry: bytes | None = None,
) -> Call:
    """See ``leases.encode_release``; its decoder serves all of them."""
    claim = attempt.claim
    if claim.mode.kind is Kind.RWLOCK:
        return rwlocks.encode_release(claim, owner, publish, tombstone, waiter)
    if claim.mode.kind is Kind.SEMAPHORE:
        return permits.encode_release(claim, owner, publish, tombstone, waiter)
    return leases.encode_release(claim.name, owner, publish, tombstone=tombstone, waiter=waiter, entry=entry)


def batches(attempts: Sequence[RedisAttempt]) -> Iterator[Sequence[RedisAttempt]]:
    """Splits attempts into parts that one script may renew: of one kind, and not too long."""
    if all(attempt.claim.mode is EXCLUSIVE for attempt in attempts):  # as nearly always: there may be 50,000
        for start in range(0, len(attempts), leases.MOST_RENEWED):
            yield attempts[start : start + leases.MOST_RENEWED]
        return
    for kind, most in (
        (Kind.LOCK, leases.MOST_RENEWED),
        (Kind.RWLOCK, leases.MOST_RENEWED),
        (Kind.SEMAPHORE, permits.MOST_RENEWED),
    ):
        batch, length = list["RedisAttempt"](), 0
        for attempt in attempts:
            if attempt.claim.mode.kind is not kind:
                continue
            if batch and length + attempt.claim.mode.permits > most:
                yield batch
                batch, length = [], 0
            batch.append(attempt)
            length += attempt.claim.mode.permits
        if batch:
            yield batch


def renewal(attempts: Sequence[RedisAttempt], ttl: float, counter_ttl: int, *, always_write: bool) -> Call:
    """See ``leases.encode_renew``, whose decoder serves all of them. ``attempts`` are of one kind."""
    kind = attempts[0].claim.mode.kind
    if kind is Kind.RWLOCK or kind is Kind.SEMAPHORE:
        held = [(attempt.claim, attempt.owner) for attempt in attempts]
        encode = rwlocks.encode_renew if kind is Kind.RWLOCK else permits.encode_renew
        return encode(held, ttl, counter_ttl, always_write=always_write)
    owned = [(attempt.claim.name, attempt.owner) for attempt in attempts]
    return leases.encode_renew(owned, ttl, counter_ttl, always_write=always_write)


def renewal_apart(attempt: RedisAttempt, ttl: float, *, always_write: bool) -> Sequence[Call]:
    """The same for one attempt, by calls that name one key each: the next is sent if the one before found the hold."""
    claim, kind = attempt.claim, attempt.claim.mode.kind
    if kind is Kind.RWLOCK or kind is Kind.SEMAPHORE:
        encode = rwlocks.encode_renew_apart if kind is Kind.RWLOCK else permits.encode_renew_apart
        return encode(claim, attempt.owner, ttl, always_write=always_write)
    return (leases.encode_renew([(claim.name, attempt.owner)], ttl, 0, always_write=always_write, lock_only=True),)
