"""The scripts of semaphores, ``permits_*.lua``, on RPermitExpirableSemaphore's wire format. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from holdfast.engines.base import MOST_WAITERS, Busy, Claim, Granted, Holder, LockState, Mode
from holdfast.engines.redis.dialect import metadata
from holdfast.engines.redis.dialect.keys import keys_of, shared_keys_of
from holdfast.engines.redis.dialect.leases import SHORTEST_TOMBSTONE
from holdfast.engines.redis.dialect.packing import Argument, milliseconds
from holdfast.engines.redis.dialect.requests import Arguments, Call, Closing, Opening, Publish, packed_around
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
#: Permits stay out for this much longer than their lease (s): Redisson compares their end with the clocks of its
#: clients, which may be fast.
_LONGER: Final = 1.0
#: Ends of requests whose packed form is kept.
_KEPT: Final = 1024
#: Redisson's score of a permit that never expires.
_NEVER: Final = 922337203685477


class PermitKeys:
    """The keys of the scripts that take and return permits, packed once for each name."""

    __slots__ = ("acquire", "channel", "release")

    def __init__(self, name: str) -> None:
        keys, shared = keys_of(name), shared_keys_of(name)
        own = (name, keys.timeouts, shared.holders)
        self.channel = shared.permits_channel
        self.acquire = Opening.of(PERMITS_ACQUIRE, (*own, keys.queue, keys.tombstones), arguments=7)
        self.release = Opening.of(PERMITS_RELEASE, (*own, keys.tombstones), arguments=4)


@lru_cache(maxsize=4096)
def permit_keys_of(name: str) -> PermitKeys:
    """Those of the semaphore ``name``."""
    return PermitKeys(name)


def encode_acquire(claim: Claim, owner: str, waiter: str | None, counter_ttl: int, publish: Publish) -> Call:
    """``waiter``: the claim's entry in the queue, which a grant removes."""
    keys, mode = permit_keys_of(claim.name), claim.mode
    closing = _acquire_closing(claim.ttl, mode.permits, mode.size, claim.description, counter_ttl, publish)
    if waiter is None:
        return Call(PERMITS_ACQUIRE, keys.acquire, Arguments(owner, closing))
    return Call(PERMITS_ACQUIRE, (*keys.acquire, keys_of(claim.name).waiter(waiter)), (owner, *closing, waiter))


def encode_acquire_directly(
    keys: PermitKeys, mode: Mode, owner: str, ttl: float, description: bytes, counter_ttl: int, publish: Publish
) -> bytes:
    """The same, for a claim that is in no queue."""
    closing = _acquire_closing(ttl, mode.permits, mode.size, description, counter_ttl, publish)
    return packed_around(keys.acquire, owner, closing)


@lru_cache(maxsize=_KEPT)
def _acquire_closing(
    ttl: float, count: int, size: int, description: bytes, counter_ttl: int, publish: Publish
) -> Closing:
    """Each task of an event loop has a description of its own: the parts around it are kept too."""
    before, after = _around_description(ttl, count, size, counter_ttl, publish)
    return Closing.around(before, description, after)


@lru_cache(maxsize=_KEPT)
def _around_description(
    ttl: float, count: int, size: int, counter_ttl: int, publish: Publish
) -> tuple[Closing, Closing]:
    return Closing.of(milliseconds(ttl + _LONGER), count, size), Closing.of(counter_ttl, publish)


def decode_acquire(claim: Claim, reply: Any) -> Granted | Busy:
    return decode_directly(reply) or Busy(impossible=f"{claim.mode.permits} permits are wanted, and it has {reply[1]}")


def decode_directly(reply: Any) -> Granted | Busy | None:
    """None: ask again by the full way, which finds out what is wrong."""
    if reply.__class__ is int:
        return Busy()
    if reply.__class__ is not list or reply[0] is None:
        return None
    return Granted(int(reply[0]), size=reply[1])


def encode_release(claim: Claim, owner: str, publish: Publish, tombstone: float | None, waiter: str | None) -> Call:
    """As ``leases.encode_release``. The reply is that of ``release.lua``."""
    keys = permit_keys_of(claim.name)
    closing = _release_closing(keys.channel, publish, claim.mode.permits)
    if tombstone is None and waiter is None:
        return Call(PERMITS_RELEASE, keys.release, Arguments(owner, closing))
    args = (owner, *closing, 0 if tombstone is None else milliseconds(tombstone))
    if waiter is None:
        return Call(PERMITS_RELEASE, tuple(keys.release), args)
    queue = keys_of(claim.name)
    return Call(PERMITS_RELEASE, (*keys.release, queue.queue, queue.waiter(waiter)), (*args, waiter))


def encode_release_directly(keys: PermitKeys, permits: int, owner: str, publish: Publish) -> bytes:
    """The same, without a tombstone and a waiter."""
    return packed_around(keys.release, owner, _release_closing(keys.channel, publish, permits))


@lru_cache(maxsize=_KEPT)
def _release_closing(channel: str, publish: Publish, count: int) -> Closing:
    return Closing.of(channel, count, publish)


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
    args: list[Argument] = [milliseconds(ttl + _LONGER), counter_ttl, 1 if always_write else 0]
    for claim, owner in leases:
        args += (owner, claim.mode.permits)
    # Not the permits themselves: each of many holders changes them when it comes, goes and renews.
    watched = dict.fromkeys(shared_keys_of(claim.name).broken for claim, _ in leases)
    return Call(PERMITS_RENEW, named, args, watched=list(watched))


def encode_resize(name: str, size: int, request: str, counter_ttl: int, publish: Publish) -> Call:
    """``request``: its name in all repeats, or empty. Its reply needs no decoder: the semaphore has, or had, that
    size."""
    keys, shared = keys_of(name), shared_keys_of(name)
    args = (size, counter_ttl, shared.permits_channel, publish, request, milliseconds(SHORTEST_TOMBSTONE))
    return Call(PERMITS_RESIZE, (name, keys.timeouts, shared.holders, keys.tombstones), args)


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
