"""A lock file as the callers of one client use it."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from time import time_ns
from typing import Final

from holdfast.engines.base import Busy, Claim, Found, Granted, LockState, SimpleAttempt
from holdfast.engines.sqlite import operations, shares, statements
from holdfast.engines.sqlite.access import StoreAccess
from holdfast.engines.sqlite.contender import SqliteContender
from holdfast.engines.sqlite.faults import Contended
from holdfast.engines.sqlite.operations import SECOND, free_awaited
from holdfast.engines.sqlite.registers import SqliteRegisters, conditions
from holdfast.engines.sqlite.statements import RELEASE_OWN, TAKE_AGAIN, TAKE_FREE
from holdfast.engines.sqlite.store import NOTED, UNAWAITED, WAITED, Store

_OURS: Final = Found.OURS  # looked up in its class it costs 0.1 µs, before Python 3.12


class SqliteSession(StoreAccess):
    """See :class:`holdfast.engines.base.Session`."""

    attempt = SimpleAttempt
    contended = frozenset[str]()

    @property
    def registers(self) -> SqliteRegisters:
        return SqliteRegisters(self)

    def liveness_fileno(self) -> int:
        """The descriptor to pass to a command, so that this process's locks stay held after its death.

        As flock(1) does: a process that has it open counts as this one. It does not renew: the locks end at their ttl.
        """
        return self.store(self.runtime.now()).liveness_fileno()

    async def acquire(self, attempt: SimpleAttempt, timeout: float) -> Granted | Busy:
        now = self.runtime.now()
        take = shares.take if shares.is_shared(attempt.claim) else operations.take
        try:
            return take(self.store(now), int(now * SECOND), attempt)
        except Contended:
            return await self.run_retrying(timeout, take, attempt)

    def acquire_directly(
        self, name: str, owner: str, description: bytes, ttl: float, timeout: float
    ) -> int | Busy | None:
        """See :class:`holdfast.engines.base.DirectSession`."""
        # As ``take``, for what nearly every acquire is: of a free name, for one token.
        now = self.runtime.now()
        try:
            store = self._store
            if store is None or now >= store.look_at:
                store = self.store(now)
            micro, duration, wall = int(now * SECOND), int(ttl * SECOND), time_ns() // 1000
            until = micro + duration
            if until > store.proven_until:
                store.extend_proof(until, micro)
            again = name, duration, description
            notes = store.notes
            last, noted = store.last_grants.get(again, wall), notes.owners.get(name)
            if last < wall and store.write(TAKE_AGAIN, (owner, until, wall, name, last, duration, noted, store.boot)):
                store.held[owner] = notes.places.get(name) or notes.place(name)
            else:
                new = (name, owner, store.process, store.boot, until, duration, wall, wall, description, noted)
                if not store.write(TAKE_FREE, new):
                    store.last_grants.pop(again, None)
                    return operations.busy(store, micro, name, owner)
                store.make_room()
                store.held[owner] = UNAWAITED
            store.last_grants[again] = wall
            return wall
        except Contended:
            return None

    def release_directly(self, name: str, owner: str, timeout: float) -> Found | None:
        now = self.runtime.now()
        try:
            store = self._store
            if store is None or now >= store.look_at:
                store = self.store(now)
            known = store.held.get(owner, WAITED)
            if known > NOTED:
                if store.note_release(name, owner, known):
                    return _OURS
            elif known == UNAWAITED and store.write(RELEASE_OWN, (time_ns() // 1000, name, owner)):
                store.held.pop(owner, None)
                return _OURS
            freed = free_awaited(store, int(now * SECOND), name, owner, store.process) or store.was_noted(owner)
            return _OURS if freed else None
        except Contended:
            return None

    def acquired(self, reply: int | Busy | None) -> int | Busy | None:
        return reply

    def released(self, reply: Found | None) -> Found | None:
        return reply

    def nested(self, claim: Claim, under: SimpleAttempt) -> SimpleAttempt:
        return shares.NestedAttempt(claim, under.owner)

    def contender(self, attempt: SimpleAttempt, timeout: float) -> SqliteContender:
        return SqliteContender(self, attempt, timeout)

    async def release(self, attempt: SimpleAttempt, timeout: float) -> Found:
        now = self.runtime.now()
        give_up = shares.give_up if shares.is_shared(attempt.claim) else operations.give_up
        try:
            return give_up(self.store(now), int(now * SECOND), attempt.claim)
        except Contended:
            return await self.run_retrying(timeout, give_up, attempt.claim)

    async def renew(self, attempt: SimpleAttempt, ttl: float, timeout: float) -> Found:
        extend = shares.extend if shares.is_shared(attempt.claim) else operations.extend
        return await self.run_retrying(timeout, extend, attempt.claim, ttl)

    async def resize(self, name: str, size: int, timeout: float, request: str = "") -> None:
        await self.run_retrying(timeout, shares.resize, name, size)

    async def transfer(self, attempt: SimpleAttempt, from_owner: str, timeout: float) -> Granted | Found:
        return await self.run_retrying(timeout, operations.transfer, attempt, from_owner)

    async def inspect(self, name: str, timeout: float) -> LockState:
        state = await self.run_retrying(timeout, shares.inspect, name)
        waiting = await self.run_retrying(timeout, conditions, name)
        return dataclasses.replace(state, conditions=waiting) if waiting else state

    async def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        after: str | None = None
        while page := await self.run_retrying(timeout, shares.page_of_names, prefix, after):
            for name, held in page:
                if held:
                    yield name
            after = page[-1][0]

    async def break_(self, name: str, timeout: float, token: int | None = None) -> bool:
        return await self.run_retrying(timeout, shares.break_, name, token)

    async def ping(self, timeout: float) -> None:
        await self.run_retrying(timeout, _ping)


def _ping(store: Store, now: int) -> None:
    store.write(statements.PING, ())
