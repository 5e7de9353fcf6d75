"""One claim's place in the queue of its name."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

from holdfast.engines.base import Claim, RequestFailed
from holdfast.engines.sqlite import operations, statements
from holdfast.engines.sqlite.process_watch import ProcessWatch
from holdfast.engines.sqlite.store import Store
from holdfast.engines.sqlite.verdict import Row
from holdfast.engines.sqlite.wakeup_socket import WakeupSocket
from holdfast.errors import EngineRefused

if TYPE_CHECKING:
    from holdfast.engines.sqlite.session import SqliteSession

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

    def __init__(self, session: SqliteSession, claim: Claim, timeout: float) -> None:
        self._session = session
        self._claim = claim
        self.timeout = timeout
        self._store: Store | None = None
        self._wakeup: WakeupSocket | None = None
        self._watch: ProcessWatch | None = None
        self._holder: str | None = None  # the process that held the name at the last look
        self._refresh_at = 0.0
        self._poll = _FIRST_POLL

    async def wait(self, until: float) -> None:
        runtime = self._session.runtime
        while True:
            if self._wakeup is not None:
                self._wakeup.drain()  # empty it, then look: what rings from now on is about what comes after the look
            now = runtime.now()
            if now >= self._refresh_at:
                await self._session.run_retrying(self.timeout, self._take_place)
            worthwhile, holder = await self._session.run_retrying(self.timeout, self._look)
            now = runtime.now()
            if worthwhile or now >= until:
                return
            pause = self._poll * random.uniform(0.6, 1.0)
            self._poll = min(self._poll * 2, _POLL)
            if holder is not None:
                pause = min(pause, max(0.0, holder.expires / operations.SECOND - now))
            await self._sleep(min(until, now + pause))

    def _look(self, store: Store, now: int) -> tuple[bool, Row | None]:
        worthwhile, holder = operations.is_worth_trying(store, now, self._claim)
        process = None if holder is None else holder.process
        if process != self._holder:
            self._close_watch()
        elif process is not None and process != store.process and self._watch is None and not worthwhile:
            try:
                self._watch = store.watch_process(process)
            except OSError:
                pass  # then we poll
        self._holder = process
        return worthwhile, holder

    async def _sleep(self, until: float) -> None:
        runtime = self._session.runtime
        # A negative number: another thread has closed the session under us, as the next look will tell.
        ears = [ear.fileno() for ear in (self._wakeup, self._watch) if ear is not None and ear.fileno() >= 0]
        if not ears:
            await runtime.sleep_until(until)
            return
        await runtime.readable(ears, until)
        if self._watch is not None and self._watch.has_ended():
            self._close_watch()
            self._poll = _POLL_AFTER_DEATH

    def _take_place(self, store: Store, now: int) -> None:
        """Enter the queue, or show that we are still there."""
        claim, expires = self._claim, now + int(_PLACE_TTL * operations.SECOND)
        if store is not self._store:  # the first time; or the file was replaced under us
            self.abandon()
            self._store = store
            try:
                self._wakeup = store.wakeup_socket("wait")
            except OSError:
                self._wakeup = None  # no sockets on this file system: poll
        self._refresh_at = now / operations.SECOND + _PLACE_TTL / 2
        if claim.waiter is not None and store.write(statements.STAY, (expires, claim.name, claim.owner)):
            return
        claim.waiter = claim.owner
        bell = "" if self._wakeup is None else self._wakeup.name
        about = (time.time_ns() // 1000, claim.description)
        place = (claim.name, claim.owner, store.process, store.boot, expires, bell, *about, claim.name)
        store.write(statements.ENQUEUE, place)

    async def leave(self) -> bool:
        self.abandon()
        if self._claim.waiter is not None:
            try:
                await self._session.run_retrying(self.timeout, operations.leave_queue, self._claim)
            except (RequestFailed, EngineRefused):
                return False
            self._claim.waiter = None
        return True

    def abandon(self) -> None:
        self._close_watch()
        bell, self._wakeup = self._wakeup, None
        if bell is not None and self._store is not None:
            self._store.close_socket(bell)

    def _close_watch(self) -> None:
        vigil, self._watch = self._watch, None
        if vigil is not None and self._store is not None:
            self._store.close_socket(vigil)
