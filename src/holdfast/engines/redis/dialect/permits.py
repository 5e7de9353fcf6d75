"""The scripts of semaphores, ``permits_*.lua``, on RPermitExpirableSemaphore's wire format. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.engines.base import MOST_WAITERS, Busy, Claim, Granted, Holder, LockState
from holdfast.engines.redis.dialect import metadata
from holdfast.engines.redis.dialect.keys import keys_of, shared_keys_of
from holdfast.engines.redis.dialect.packing import Argument, milliseconds
from holdfast.engines.redis.dialect.requests import Call, Publish
from holdfast.engines.redis.scripts import (
    PERMITS_ACQUIRE,
    PERMITS_BREAK,
    PERMITS_INSPECT,
    PERMITS_RELEASE,
    PERMITS_RENEW,
    PERMITS_RESIZE,
)

#: Permits renewed by one script: a longer one would block the server's other clients for too long.
MOST_RENEWED: Final = 200
#: Redisson's score of a permit that never expires.
_NEVER: Final = 922337203685477


def encode_acquire(claim: Claim, owner: str, waiter: str | None, counter_ttl: int, publish: Publish) -> Call:
    """``waiter``: the claim's entry in the queue, which a grant removes."""
    keys, shared = keys_of(claim.name), shared_keys_of(claim.name)
    named = (claim.name, keys.timeouts, shared.holders, keys.queue, keys.tombstones)
    args = (
        owner,
        milliseconds(claim.ttl),
        claim.mode.permits,
        claim.mode.size,
        claim.description,
        counter_ttl,
        shared.permits_channel,
        publish,
    )
    if waiter is None:
        return Call(PERMITS_ACQUIRE, named, args)
    return Call(PERMITS_ACQUIRE, (*named, keys.waiter(waiter)), (*args, waiter))


def decode_acquire(claim: Claim, reply: Any) -> Granted | Busy:
    if reply.__class__ is int:
        return Busy()
    token, size = reply
    if token is None:
        return Busy(impossible=f"{claim.mode.permits} permits are wanted, and it has {size}")
    return Granted(int(token), size=size)


def encode_release(claim: Claim, owner: str, publish: Publish, tombstone: float | None, waiter: str | None) -> Call:
    """As ``leases.encode_release``. The reply is that of ``release.lua``."""
    keys, shared = keys_of(claim.name), shared_keys_of(claim.name)
    named = (claim.name, keys.timeouts, shared.holders, keys.tombstones)
    lasts = 0 if tombstone is None else milliseconds(tombstone)
    args = (owner, shared.permits_channel, publish, lasts, claim.mode.permits)
    if waiter is None:
        return Call(PERMITS_RELEASE, named, args)
    return Call(PERMITS_RELEASE, (*named, keys.queue, keys.waiter(waiter)), (*args, waiter))


def encode_renew(leases: Sequence[tuple[Claim, str]], ttl: float, counter_ttl: int, *, always_write: bool) -> Call:
    """As ``leases.encode_renew``, for claims and their owners. The reply is that of ``renew.lua``."""
    named: list[str] = []
    for claim, _ in leases:
        named += (keys_of(claim.name).timeouts, claim.name, shared_keys_of(claim.name).holders)
    return _renew(leases, named, ttl, counter_ttl, always_write)


def encode_renew_apart(claim: Claim, owner: str, ttl: float, *, always_write: bool) -> Sequence[Call]:
    """The same for one claim by a call that names one key."""
    return (_renew([(claim, owner)], [keys_of(claim.name).timeouts] * 3, ttl, 0, always_write),)


def _renew(
    leases: Sequence[tuple[Claim, str]], named: Sequence[str], ttl: float, counter_ttl: int, always_write: bool
) -> Call:
    args: list[Argument] = [milliseconds(ttl), counter_ttl, 1 if always_write else 0]
    for claim, owner in leases:
        args += (owner, claim.mode.permits)
    # Not the permits themselves: each of many holders changes them when it comes, goes and renews.
    watched = dict.fromkeys(shared_keys_of(claim.name).broken for claim, _ in leases)
    return Call(PERMITS_RENEW, named, args, watched=list(watched))


def encode_resize(name: str, size: int, counter_ttl: int, publish: Publish) -> Call:
    """Its reply needs no decoder: afterwards the semaphore has that size."""
    args = (size, counter_ttl, shared_keys_of(name).permits_channel, publish)
    return Call(PERMITS_RESIZE, (name, keys_of(name).timeouts), args)


def encode_inspect(name: str) -> Call:
    keys, shared = keys_of(name), shared_keys_of(name)
    return Call(PERMITS_INSPECT, (name, keys.timeouts, shared.holders, keys.queue), (MOST_WAITERS,))


def decode_inspect(name: str, reply: Sequence[Any]) -> LockState:
    free, ours, others, waiting, seconds, micros, described, expired = reply
    now = int(seconds) + int(micros) / 1e6
    holders = [_holder(owner.decode("utf-8", "replace"), count, score, fact) for owner, count, score, fact in ours]
    holders += [_holder(id_.hex(), 1, score, None) for id_, score in zip(others[::2], others[1::2], strict=True)]
    ends = [holder.until for holder in holders if holder.until is not None]
    out = sum(holder.count or 0 for holder in holders)
    return LockState(
        name,
        tuple(holders),
        waiting,
        None,
        max(max(ends) - now, 0.0) if ends else None,
        tuple(metadata.waiters(described, lambda _: "permits")),
        kind="semaphore",
        size=None if free is None else int(free) + out + expired,
        free=None if free is None else max(int(free) + expired, 0),
    )


def _holder(owner: str, count: int, score: bytes, fact: bytes | None) -> Holder:
    until = None if float(score) >= _NEVER else float(score) / 1000.0
    return metadata.shared_holder(owner, fact, "permits", count, until)


def encode_held(name: str) -> tuple[str, str]:
    """A plain command: how many permits are out."""
    return ("ZCARD", keys_of(name).timeouts)


def encode_break(name: str, publish: Publish, counter_ttl: int, token: int | None) -> Call:
    """As ``operators.encode_break``. The reply is that of ``break.lua``."""
    keys, shared = keys_of(name), shared_keys_of(name)
    args = (shared.permits_channel, publish, counter_ttl, "" if token is None else str(token))
    return Call(PERMITS_BREAK, (name, keys.timeouts, shared.holders, shared.broken), args)
