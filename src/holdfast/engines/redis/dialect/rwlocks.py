"""The scripts of read-write locks, ``rw_*.lua`` and ``extend.lua``, on RReadWriteLock's wire format. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from holdfast.engines.base import MOST_WAITERS, Claim, Holder, LockState
from holdfast.engines.redis.dialect import metadata
from holdfast.engines.redis.dialect.keys import keys_of, shared_keys_of
from holdfast.engines.redis.dialect.packing import Argument, milliseconds
from holdfast.engines.redis.dialect.requests import HEADS, Call, Closing, Opening, Publish, head
from holdfast.engines.redis.scripts import EXTEND, RW_ACQUIRE, RW_BREAK, RW_INSPECT, RW_RELEASE, RW_RENEW

_WRITE: Final = ":write"
#: Parts of requests whose packed form is kept.
_KEPT: Final = 1024


class RwKeys:
    """The keys of the scripts that take and release a read-write lock, packed once for each name. Each request adds the
    time-out key of its owner."""

    __slots__ = ("_after_owner", "_before_owner", "_length", "acquire", "release")

    def __init__(self, name: str) -> None:
        keys, shared = keys_of(name), shared_keys_of(name)
        taken = (name, keys.token, shared.holders, keys.queue, keys.tombstones)
        self.acquire = Opening.of(RW_ACQUIRE, taken, arguments=5, more=1)
        self.release = Opening.of(RW_RELEASE, (name, shared.holders, keys.tombstones), arguments=4, more=1)
        before, _, after = shared.timeout_of("\0").encode().partition(b"\0")
        self._before_owner, self._after_owner, self._length = before, after + b"\r\n", len(before) + len(after)

    def request(self, opening: Opening, owner: str, rest: bytes) -> bytes:
        """One of the scripts with its keys and arguments. ``rest``: those after the owner."""
        word = owner.encode()
        length, before, after = len(word), self._before_owner, self._after_owner
        timeout = head(self._length + length)
        return b"".join((opening.packed, timeout, before, word, after, HEADS[length], word, rest))


@lru_cache(maxsize=4096)
def rw_keys_of(name: str) -> RwKeys:
    """Those of the read-write lock ``name``."""
    return RwKeys(name)


def encode_acquire_directly(
    keys: RwKeys, label: str, owner: str, ttl: float, description: bytes, counter_ttl: int
) -> bytes:
    """As ``encode_acquire``, for a claim that is in no queue and under no other."""
    return keys.request(keys.acquire, owner, _acquire_rest(label, ttl, description, counter_ttl))


@lru_cache(maxsize=_KEPT)
def _acquire_rest(label: str, ttl: float, description: bytes, counter_ttl: int) -> bytes:
    return b"\r\n" + Closing.of(milliseconds(ttl), label, description, counter_ttl).packed


def encode_release_directly(keys: RwKeys, name: str, label: str, owner: str, publish: Publish) -> bytes:
    """As ``encode_release``, without a tombstone and a waiter."""
    return keys.request(keys.release, owner, _release_rest(name, label, publish))


@lru_cache(maxsize=4096)
def _release_rest(name: str, label: str, publish: Publish) -> bytes:
    return b"\r\n" + Closing.of(shared_keys_of(name).rwlock_channel, label, publish).packed


def encode_acquire(claim: Claim, owner: str, waiter: str | None, counter_ttl: int, under: str | None) -> Call:
    """``waiter``: the claim's entry in the queue, which a grant removes. ``under``: the owner that holds the lock for
    writing, if the claim is to read inside of that. The reply is that of ``acquire.lua``."""
    named = (*rw_keys_of(claim.name).acquire, shared_keys_of(claim.name).timeout_of(owner))
    args: tuple[Argument, ...] = (
        owner,
        milliseconds(claim.ttl),
        claim.mode.label,
        claim.description,
        counter_ttl,
    )
    if under is not None or waiter is not None:
        args += ("" if under is None else under + _WRITE,)
    if waiter is None:
        return Call(RW_ACQUIRE, named, args)
    return Call(RW_ACQUIRE, (*named, keys_of(claim.name).waiter(waiter)), (*args, waiter))


def encode_release(claim: Claim, owner: str, publish: Publish, tombstone: float | None, waiter: str | None) -> Call:
    """As ``leases.encode_release``. The reply is that of ``release.lua``."""
    keys, shared = keys_of(claim.name), shared_keys_of(claim.name)
    named = (*rw_keys_of(claim.name).release, shared.timeout_of(owner))
    args: tuple[Argument, ...] = (owner, shared.rwlock_channel, claim.mode.label, publish)
    if tombstone is not None or waiter is not None:
        args += (0 if tombstone is None else milliseconds(tombstone),)
    if waiter is None:
        return Call(RW_RELEASE, named, args)
    return Call(RW_RELEASE, (*named, keys.queue, keys.waiter(waiter)), (*args, waiter))


def encode_renew(leases: Sequence[tuple[Claim, str]], ttl: float, counter_ttl: int, *, always_write: bool) -> Call:
    """As ``leases.encode_renew``, for claims and their owners. The reply is that of ``renew.lua``."""
    named: list[str] = []
    for claim, owner in leases:
        keys, shared = keys_of(claim.name), shared_keys_of(claim.name)
        mine = shared.timeout_of(owner) if claim.mode.shared else claim.name
        named += (claim.name, mine, shared.holders, keys.token)
    return _renew(leases, named, ttl, counter_ttl, always_write)


def encode_renew_apart(claim: Claim, owner: str, ttl: float, *, always_write: bool) -> Sequence[Call]:
    """The same for one claim by calls that name one key each; what is only information has to wait. Each has a reply
    as ``renew.lua``; the lock comes first, the others are sent only if it is held."""
    lock = _renew([(claim, owner)], [claim.name] * 4, ttl, 0, always_write)
    if not claim.mode.shared:
        return (lock,)
    return (lock, Call(EXTEND, (shared_keys_of(claim.name).timeout_of(owner),), (milliseconds(ttl),)))


def _renew(
    leases: Sequence[tuple[Claim, str]], named: Sequence[str], ttl: float, counter_ttl: int, always_write: bool
) -> Call:
    args: list[Argument] = [milliseconds(ttl), counter_ttl, 1 if always_write else 0]
    args += [owner if claim.mode.shared else owner + _WRITE for claim, owner in leases]
    # A reader does not watch the lock: each of many readers changes it when it comes, goes and renews.
    watched = [shared_keys_of(claim.name).broken if claim.mode.shared else claim.name for claim, _ in leases]
    return Call(RW_RENEW, named, args, watched=list(dict.fromkeys(watched)))


def encode_inspect(name: str) -> Call:
    keys, shared = keys_of(name), shared_keys_of(name)
    return Call(RW_INSPECT, (name, keys.token, shared.holders, keys.queue), (MOST_WAITERS, shared.readers))


def decode_inspect(name: str, reply: Sequence[Any]) -> LockState:
    holders, counter, waiting, seconds, micros, described, pttl = reply
    now = int(seconds) + int(micros) / 1e6
    queue = metadata.waiters(described, lambda waiter: "read" if waiter.startswith(b"r") else "write")
    return LockState(
        name,
        tuple(_holder(holder, now) for holder in holders),
        waiting,
        metadata.number(counter),
        pttl / 1000.0 if pttl >= 0 else None,
        tuple(queue),
        kind="rwlock",
    )


def _holder(reply: Sequence[Any], now: float) -> Holder:
    field, count, pttl, fact = reply
    shown = field.decode("utf-8", "replace")
    owner = shown.removesuffix(_WRITE)
    until = now + pttl / 1000.0 if pttl >= 0 else None
    return metadata.shared_holder(owner, fact, "read" if owner == shown else "write", metadata.number(count), until)


def encode_break(name: str, publish: Publish, counter_ttl: int, token: int | None) -> Call:
    """As ``operators.encode_break``. The reply is that of ``break.lua``."""
    keys, shared = keys_of(name), shared_keys_of(name)
    args = (shared.rwlock_channel, publish, counter_ttl, "" if token is None else str(token), shared.readers)
    return Call(RW_BREAK, (name, keys.token, shared.holders, shared.broken), args)
