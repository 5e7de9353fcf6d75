"""A store as the callers of one client use it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import AsyncIterator
from typing import Final

from holdfast.engines import descriptions
from holdfast.engines.base import (
    EXCLUSIVE,
    MOST_WAITERS,
    Busy,
    Claim,
    Found,
    Granted,
    Holder,
    Kind,
    LockState,
    SimpleAttempt,
    Waiter,
    is_of_grant,
    wrong_kind,
)
from holdfast.engines.memory import shared_names
from holdfast.engines.memory.contender import MemoryContender
from holdfast.engines.memory.registers import MemoryRegisters
from holdfast.engines.memory.shared_names import NestedAttempt
from holdfast.engines.memory.sharing import Share, Shared
from holdfast.engines.memory.store import NOTHING, Entry, Name, Place
from holdfast.engines.memory.view import StoreView
from holdfast.engines.memory.watch import MemoryWatch

_wall_ns: Final = time.time_ns
_OURS: Final = Found.OURS  # looked up in its class it costs 0.1 µs, before Python 3.12


class MemorySession(StoreView):
    """See :class:`holdfast.engines.base.Session`."""

    attempt = SimpleAttempt
    contended = frozenset[str]()

    @property
    def registers(self) -> MemoryRegisters:
        return MemoryRegisters(self.store, self.runtime)

    def watch(self, name: str) -> MemoryWatch:
        return MemoryWatch(self.store, self.runtime, name)

    def nested(self, claim: Claim, under: SimpleAttempt) -> NestedAttempt:
        return NestedAttempt(claim, under.owner)

    async def acquire(self, attempt: SimpleAttempt, timeout: float) -> Granted | Busy:
        claim = attempt.claim
        now, store, name = self.runtime.now(), self.store, claim.name
        if claim.mode is not EXCLUSIVE:
            return shared_names.acquire(store, attempt, now)
        while True:
            forgotten, record = store.forgotten, store.names.get(name)
            entry = None if record is None else record.live(now)
            if entry is not None:
                if entry.owner != claim.owner:
                    return Busy(entry.expires - now)
                if store.extend(name, entry, now + claim.ttl):
                    return Granted(entry.token)
                continue
            queue: tuple[Place, ...] = ()
            last = forgotten
            if record is not None:
                last = record.token
                if record.shared is not None and (kind := record.in_use_as(now)) is not None:
                    raise wrong_kind(name, Kind.LOCK, kind)
                if record.queue:
                    head = record.head(now)
                    if (
                        head is not None
                        and head.owner != claim.owner
                        and (claim.fair or claim.non_barging or head.late(now))
                    ):
                        head.notify(now)
                        return Busy(None)
                    queue = record.queue_without(claim.owner)
            wall, tokens = time.time_ns(), claim.tokens
            token = max(last + 1, wall // 1000) + tokens - 1
            entry = Entry(claim.owner, now + claim.ttl, token, tokens, claim.description, wall)
            if store.replace(name, record, forgotten, Name(token, entry, queue)):
                return Granted(token)

    def acquire_directly(self, name: str, owner: str, description: bytes, ttl: float, timeout: float) -> int | None:
        """See :class:`holdfast.engines.base.DirectSession`. Names that are free are not in the store."""
        store = self.store
        forgotten, names = store.forgotten, store.names
        if name in names:
            return None
        wall = _wall_ns()
        token = wall // 1000
        if token <= forgotten:
            token = forgotten + 1
        record = Name(token, Entry(owner, self.runtime.now() + ttl, token, 1, description, wall), ())
        with store.lock:  # and no call in here
            if name in names or forgotten != store.forgotten or store.watches:
                return None
            names[name] = record
        return token

    def release_directly(self, name: str, owner: str, timeout: float) -> Found | None:
        store = self.store
        names = store.names
        record = names.get(name)
        if record is None or record.queue:
            return None
        entry = record.entry
        if entry is None or entry.owner != owner or entry.expires <= self.runtime.now():
            return None
        token = record.token
        with store.lock:  # and no call in here
            if name not in names or names[name] is not record or store.watches:
                return None
            del names[name]
            if store.forgotten < token:
                store.forgotten = token
        return _OURS

    def acquired(self, reply: int | Busy | None) -> int | Busy | None:
        return reply

    def released(self, reply: Found | None) -> Found | None:
        return reply

    def contender(self, attempt: SimpleAttempt, timeout: float) -> MemoryContender:
        return MemoryContender(self, attempt)

    async def release(self, attempt: SimpleAttempt, timeout: float) -> Found:
        return self.freed(attempt, self.runtime.now())

    async def renew(self, attempt: SimpleAttempt, ttl: float, timeout: float) -> Found:
        now = self.runtime.now()
        return self.renewed(attempt, now, now + ttl)

    async def transfer(self, attempt: SimpleAttempt, from_owner: str, timeout: float) -> Granted | Found:
        """See :class:`holdfast.engines.optional_sessions.TransferSession`."""
        claim, store = attempt.claim, self.store
        now = self.runtime.now()
        while True:
            record = store.names.get(claim.name, NOTHING)
            entry = record.live(now)
            if entry is None:
                return Found.GONE
            if entry.owner == claim.owner:
                if store.extend(claim.name, entry, now + claim.ttl):
                    return Granted(entry.token)
            elif entry.owner != from_owner:
                return Found.STOLEN
            else:
                wall = time.time_ns()
                token = max(record.token + 1, wall // 1000)
                expires = max(entry.expires, now + claim.ttl)
                taken = Entry(claim.owner, expires, token, 1, claim.description, wall)
                if store.replace(claim.name, record, 0, Name(token, taken, record.queue)):
                    return Granted(token)

    async def inspect(self, name: str, timeout: float) -> LockState:
        waiting = self.registers.conditions(name)
        return dataclasses.replace(self._state(name), conditions=waiting) if waiting else self._state(name)

    def _state(self, name: str) -> LockState:
        now = self.runtime.now()
        record = self.store.names.get(name, NOTHING)
        entry = record.live(now)
        waiting = [place for place in record.queue if place.contender() is not None]
        queue = tuple(
            Waiter(place.owner, **_facts(place), since=place.since, mode=place.mode.label)
            for place in waiting[:MOST_WAITERS]
        )
        if record.shared is not None:
            return _state_of_shared(name, record, record.shared.live(now), len(waiting), queue, now)
        if entry is None:
            return LockState(name, (), len(waiting), record.token or None, None, queue)
        left, first = entry.expires - now, entry.token - entry.tokens + 1
        until = time.time() + left
        holder = Holder(entry.owner, **_facts(entry), since=entry.since / 1e9, until=until, token=first, count=1)
        return LockState(name, (holder,), len(waiting), entry.token, left, queue)

    async def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        now = self.runtime.now()
        for name, record in list(self.store.names.items()):
            if name.startswith(prefix) and (
                record.live(now) or (record.shared is not None and record.shared.live(now).shares)
            ):
                yield name

    async def break_(self, name: str, timeout: float, token: int | None = None) -> bool:
        now, store = self.runtime.now(), self.store
        while (record := store.names.get(name)) is not None:
            broken = shared_names.broken(record, now, token) if record.shared else _broken(record, now, token)
            if broken is None:
                return False
            if store.replace(name, record, 0, broken):
                broken.notify_head(now)
                for reference in tuple(store.keepers):  # a copy, in one step: keepers come and go on other threads
                    keeper = reference()
                    if keeper is not None:
                        keeper.suspect(name)
                return True
        return False

    async def resize(self, name: str, size: int, timeout: float, request: str = "") -> None:
        shared_names.resize(self.store, name, size, self.runtime.now())

    async def ping(self, timeout: float) -> None:
        pass

    async def close(self) -> None:
        pass


def _broken(record: Name, now: float, token: int | None) -> Name | None:
    """The record without its holder; None if there is none, or another than that with ``token``."""
    entry = record.live(now)
    if entry is None or (token is not None and not is_of_grant(token, entry.token, entry.tokens)):
        return None
    return Name(max(record.token + 1, time.time_ns() // 1000), None, record.queue)


def _state_of_shared(
    name: str, record: Name, shared: Shared, waiters: int, queue: tuple[Waiter, ...], now: float
) -> LockState:
    wall = time.time()
    holders = tuple(
        Holder(
            share.owner,
            **_facts(share),
            since=share.since / 1e9,
            until=wall + share.expires - now,
            token=share.token,
            count=share.mode.permits,
            mode=share.mode.label,
        )
        for share in shared.shares
    )
    remaining = max((share.expires - now for share in shared.shares), default=None)
    size, free = (shared.size, shared.free) if shared.size else (None, None)
    return LockState(name, holders, waiters, record.token or None, remaining, queue, shared.kind.value, size, free)


def _facts(source: Entry | Share | Place) -> descriptions.Facts:
    return descriptions.facts(descriptions.parsed(source.description))
