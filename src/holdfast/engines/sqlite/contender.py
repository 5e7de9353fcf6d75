"""One claim's place in the queue of its name."""

from __future__ import annotations

import random
import time
from typing import Final

from holdfast.engines.base import RequestFailed, SimpleAttempt
from holdfast.engines.sqlite import ledger, statements
from holdfast.engines.sqlite.access import StoreAccess
from holdfast.engines.sqlite.bell import Bell
from holdfast.engines.sqlite.judgement import Row
from holdfast.engines.sqlite.store import Store
from holdfast.engines.sqlite.vigil import Vigil
from holdfast.errors import EngineRefused

# Never trust a wake-up alone: the one who was rung may be frozen, or die before it takes the lock.
_POLL: Final = 0.25
# The first pause is short and without a vigil: most waits are over by then, and need not pay for one.
_FIRST_POLL: Final = 0.05
# After the holder's vigil ended: its flock may follow a moment later, for the kernel closes one descriptor at a time.
_POLL_AFTER_DEATH: Final = 0.002
# How long a place counts without a sign of life. A frozen waiter at the head costs the others this once; its place is
# kept, and counts again from its next sign on.
_PLACE_TTL: Final = 2.0


class SqliteContender:
    """A row in the queue, a bell that the releasing process rings, and a vigil by the process that holds the name."""

    def __init__(self, access: StoreAccess, attempt: SimpleAttempt, timeout: float) -> None:
        self._access = access
        self._attempt = attempt
        self.timeout = timeout
        self._store: Store | None = None
        self._bell: Bell | None = None
        self._vigil: Vigil | None = None
        self._holder: str | None = None  # the process that held the name at the last look
        self._refresh_at = 0.0
        self._poll = _FIRST_POLL

    async def wait(self, until: float) -> None:
        runtime = self._access.runtime
        while True:
            if self._bell is not None:
                self._bell.heard()  # empty it, then look: what rings from now on is about what comes after the look
            now = runtime.now()
            if now >= self._refresh_at:
                await self._access.patiently(self.timeout, self._take_place)
            worthwhile, holder = await self._access.patiently(self.timeout, self._look)
            now = runtime.now()
            if worthwhile or now >= until:
                return
            pause = self._poll * random.uniform(0.6, 1.0)
            self._poll = min(self._poll * 2, _POLL)
            if holder is not None:
                pause = min(pause, max(0.0, holder.expires / ledger.SECOND - now))
            await self._sleep(min(until, now + pause))

    def _look(self, store: Store, now: int) -> tuple[bool, Row | None]:
        worthwhile, holder = ledger.is_worth_trying(store, now, self._attempt.claim)
        process = None if holder is None else holder.process
        if process != self._holder:
            self._close_vigil()
        elif process is not None and process != store.process and self._vigil is None and not worthwhile:
            try:
                self._vigil = store.vigil(process)
            except OSError:
                pass  # then we poll
        self._holder = process
        return worthwhile, holder

    async def _sleep(self, until: float) -> None:
        runtime = self._access.runtime
        # A negative number: another thread has closed the session under us, as the next look will tell.
        ears = [ear.fileno() for ear in (self._bell, self._vigil) if ear is not None and ear.fileno() >= 0]
        if not ears:
            await runtime.sleep_until(until)
            return
        await runtime.readable(ears, until)
        if self._vigil is not None and self._vigil.is_over():
            self._close_vigil()
            self._poll = _POLL_AFTER_DEATH

    def _take_place(self, store: Store, now: int) -> None:
        """Enter the queue, or show that we are still there."""
        attempt, expires = self._attempt, now + int(_PLACE_TTL * ledger.SECOND)
        if store is not self._store:  # the first time; or the file was replaced under us
            self.abandon()
            self._store = store
            try:
                self._bell = store.bell("wait")
            except OSError:
                self._bell = None  # no sockets on this file system: poll
        self._refresh_at = now / ledger.SECOND + _PLACE_TTL / 2
        claim = attempt.claim
        if attempt.queued and store.write(statements.STAY, (expires, claim.name, claim.owner)):
            return
        attempt.queued = True
        bell = "" if self._bell is None else self._bell.name
        about = (time.time_ns() // 1000, claim.description)
        place = (claim.name, claim.owner, store.process, store.boot, expires, bell, *about, claim.name)
        store.write(statements.ENQUEUE, place)

    async def leave(self) -> bool:
        self.abandon()
        if self._attempt.queued:
            try:
                await self._access.patiently(self.timeout, ledger.leave_queue, self._attempt.claim)
            except (RequestFailed, EngineRefused):
                return False
            self._attempt.queued = False
        return True

    def abandon(self) -> None:
        self._close_vigil()
        bell, self._bell = self._bell, None
        if bell is not None and self._store is not None:
            self._store.close_ear(bell)

    def _close_vigil(self) -> None:
        vigil, self._vigil = self._vigil, None
        if vigil is not None and self._store is not None:
            self._store.close_ear(vigil)
