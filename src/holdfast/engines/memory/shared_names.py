"""Read-write locks and semaphores of one store: acquire, renew, free, resize, break.

As everywhere in the store, each operation looks at a record, decides, and has it replaced if it is still the same.
"""

from __future__ import annotations

import time

from holdfast.engines.base import READ, Busy, Claim, Found, Granted, Kind, Mode, SimpleAttempt, wrong_kind
from holdfast.engines.memory.sharing import Share, Shared, conflict
from holdfast.engines.memory.store import NOTHING, Name, Place, Store


class NestedAttempt(SimpleAttempt):
    """To read a name that its caller holds for writing."""

    __slots__ = ("under",)

    def __init__(self, claim: Claim, under: str) -> None:
        super().__init__(claim)
        self.under = under  #: the owner of the write


def _shared(record: Name, claim: Claim, now: float) -> Shared:
    """What is held of the object at present; a new one if there is none. EngineRefused if the name has another kind."""
    mode = claim.mode
    if record.shared is not None and record.shared.kind is mode.kind:
        return record.shared.live(now)
    in_use = record.in_use_as(now)
    if in_use is not None and in_use is not mode.kind:
        raise wrong_kind(claim.name, mode.kind, in_use)
    return Shared(mode.kind, mode.size)


def acquire(store: Store, attempt: SimpleAttempt, now: float) -> Granted | Busy:
    claim = attempt.claim
    name, mode, owner = claim.name, claim.mode, claim.owner
    while True:
        forgotten, found = store.forgotten, store.names.get(name)
        record = Name(forgotten, None, ()) if found is None else found
        shared = _shared(record, claim, now)
        share = shared.of(owner)
        if share is not None:
            share = share._replace(expires=max(share.expires, now + claim.ttl))
        else:
            for place in record.queue:
                if place.owner == owner:
                    place.seen = now
                    break
            impossible = shared.impossible(mode)
            if impossible is not None:
                store.leave(name, owner, now)
                return Busy(impossible=impossible)
            write = shared.of(attempt.under) if isinstance(attempt, NestedAttempt) else None
            if write is None and not shared.grants(mode, record.waiting_before(owner, now)):
                return Busy(min((each.expires - now for each in shared.shares), default=None))
            wall = time.time_ns()
            share = Share(owner, mode, now + claim.ttl, _token(record.token, mode, wall), claim.description, wall)
        token = max(record.token, share.token)
        granted = record.sharing(shared.having(share), record.queue_without(owner), token)
        if store.replace(name, found, forgotten, granted):
            granted.notify_head(now)
            return Granted(share.token, size=shared.size)


def _token(last: int, mode: Mode, wall: int) -> int:
    """A reader has the token of the last write: it changes nothing that a fence would have to compare."""
    if mode is READ and last:
        return last
    return max(last + 1, wall // 1000)


def joined(store: Store, place: Place, name: str, now: float) -> Name:
    """Take a place in the queue, if it has none and the name is of its kind. Returns the record."""
    place.seen = now
    while True:
        forgotten, found = store.forgotten, store.names.get(name)
        record = Name(forgotten, None, ()) if found is None else found
        if place in record.queue or record.in_use_as(now) not in (None, place.mode.kind):
            return record
        shared = record.shared or Shared(place.mode.kind, place.mode.size)
        queued = record.sharing(shared.live(now), (*record.queue_without(place.owner), place))
        if store.replace(name, found, forgotten, queued):
            return queued


def waits(record: Name, place: Place, now: float) -> float | None:
    """Until when ``place`` waits at the longest; None: it should ask now."""
    if record.shared is None or place not in record.queue:
        return None
    shared = record.shared.live(now)
    if shared.impossible(place.mode) is not None or shared.grants(place.mode, record.waiting_before(place.owner, now)):
        return None
    return min((share.expires for share in shared.shares), default=float("inf"))


def renewed(store: Store, claim: Claim, now: float, expires: float) -> Found:
    while True:
        record, shared, share = _find(store, claim, now)
        if share is None:
            return _missing(shared, claim.mode)
        if share.expires >= expires:
            return Found.OURS
        if store.replace(
            claim.name, record, 0, record.sharing(shared.having(share._replace(expires=expires)), record.queue)
        ):
            return Found.OURS


def freed(store: Store, claim: Claim, now: float) -> Found:
    while True:
        record, shared, share = _find(store, claim, now)
        if share is None:
            return _missing(shared, claim.mode)
        left = record.sharing(shared.without(claim.owner), record.queue)
        if store.replace(claim.name, record, 0, left):
            left.notify_head(now)
            return Found.OURS


def _find(store: Store, claim: Claim, now: float) -> tuple[Name, Shared, Share | None]:
    record = store.names.get(claim.name, NOTHING)
    shared = Shared(claim.mode.kind) if record.shared is None else record.shared.live(now)
    return record, shared, shared.of(claim.owner)


def _missing(shared: Shared, mode: Mode) -> Found:
    """Other readers, or other permits, do not mean that another owner has what this one had."""
    stolen = mode.kind is Kind.RWLOCK and any(conflict(mode, share.mode) for share in shared.shares)
    return Found.STOLEN if stolen else Found.GONE


def resize(store: Store, name: str, size: int, now: float) -> None:
    while True:
        forgotten, found = store.forgotten, store.names.get(name)
        record = Name(forgotten, None, ()) if found is None else found
        in_use = record.in_use_as(now)
        if in_use is not None and in_use is not Kind.SEMAPHORE:
            raise wrong_kind(name, Kind.SEMAPHORE, in_use)
        shared = Shared(Kind.SEMAPHORE) if in_use is None or record.shared is None else record.shared.live(now)
        resized = record.sharing(shared._replace(size=size), record.queue)
        if store.replace(name, found, forgotten, resized):
            resized.notify_head(now)
            return


def broken(record: Name, now: float, token: int | None) -> Name | None:
    """The record without its holders, or without those that have ``token``; None if there are none."""
    assert record.shared is not None
    shared = record.shared.live(now)
    kept = tuple(share for share in shared.shares if token is not None and share.token != token)
    if len(kept) == len(shared.shares):
        return None
    return record.sharing(shared._replace(shares=kept), record.queue, max(record.token + 1, time.time_ns() // 1000))
