"""One claim's place in the queue of its name."""

from __future__ import annotations

import random
import time
from typing import Final

from holdfast.engines.base import Handed, RequestFailed, SimpleAttempt
from holdfast.engines.sqlite import operations, shares, statements
from holdfast.engines.sqlite.access import StoreAccess
from holdfast.engines.sqlite.process_watch import ProcessWatch
from holdfast.engines.sqlite.store import Store
from holdfast.engines.sqlite.verdict import Row
from holdfast.engines.sqlite.wakeup_socket import HANDED_OVER, WakeupSocket
from holdfast.errors import EngineRefused

# Never rely on a wake-up alone: the waiter that received it may be frozen, or die before it takes the lock.
_POLL: Final = 0.25
# The first pause is short and without a process watch: most waits end within it and need none.
_FIRST_POLL: Final = 0.05
# For how long a waiter that was woken lets itself be overtaken: the process that has released the name mostly takes it
# again, which is the cheapest hand-over there is. Meanwhile no release wakes a waiter. Then it has the next release
# hand the name over. On a busy machine it runs late when it is woken, and no other process has any use of the name
# until then; but this pause takes as much longer there.
_OVERTAKEN: Final = 0.00025
# After the watch on the holder ended: its flock ends a moment later, since the kernel closes descriptors one by one.
_POLL_AFTER_DEATH: Final = 0.002
# How long a queue entry is valid without a refresh. A frozen waiter at the head delays the others by this and a poll,
# once, which is two seconds together; its entry stays, and is valid again after its next refresh.
_ENTRY_TTL: Final = 1.75


class SqliteContender:
    """A row in the queue, a socket that the releasing process wakes, and a watch on the holder's process."""

    def __init__(self, access: StoreAccess, attempt: SimpleAttempt, timeout: float) -> None:
        self._access = access
        self._attempt = attempt
        shared = shares.is_shared(attempt.claim)
        self._is_worth_trying = shares.is_worth_trying if shared else operations.is_worth_trying
        self._leave_queue = shares.leave_queue if shared else operations.leave_queue
        self._may_be_overtaken = not shared and not attempt.claim.fair
        self.timeout = timeout
        self._store: Store | None = None
        self._wakeup: WakeupSocket | None = None
        self._watch: ProcessWatch | None = None
        self._holder: str | None = None  # the process that held the name when it was last read
        self._refresh_at = 0.0
        self._poll = _FIRST_POLL
        self._woken = False  # the last wait ended by a wake-up
        self._overtaken = False  # from then on, releases hand the name over
        self._entries = 0  # how often it has entered the queue

    async def wait(self, until: float) -> Handed | None:
        runtime = self._access.runtime
        if self._woken and self._may_be_overtaken:
            self._overtaken = True
            await runtime.sleep_until(min(until, runtime.now() + _OVERTAKEN))
        self._woken = False
        while True:
            # Before the look: a wake-up from now on is about a later change.
            if self._wakeup is not None and HANDED_OVER in self._wakeup.drain():
                return await self._accept()
            now = runtime.now()
            if now >= self._refresh_at:
                await self._access.run_retrying(self.timeout, self._enter_queue)
            worthwhile, holder = await self._access.run_retrying(self.timeout, self._look)
            now = runtime.now()
            if worthwhile or now >= until:
                return None
            pause = self._poll * random.uniform(0.6, 1.0)
            self._poll = min(self._poll * 2, _POLL)
            if holder is not None:
                pause = min(pause, max(0.0, holder.expires / operations.SECOND - now))
            messages = await self._sleep(min(until, now + pause))
            if HANDED_OVER in messages:
                return await self._accept()
            if messages:
                self._woken = True
                return None  # the name was free a moment ago: asking for it is as quick as a look, and decides

    async def _accept(self) -> Handed | None:
        """Begin the lease of what was handed over to this claim. None: it has ended, or was another's; or ask, which
        finds it."""
        if self._entries != 1:
            return None  # the hand-over has removed one entry from the queue, and there may be another
        claim, sent = self._attempt.claim, self._access.runtime.now()
        token = await self._access.run_retrying(self.timeout, operations.accept, claim)
        if token is None:
            return None
        self._attempt.queued = False
        return Handed(token, sent, claim.ttl)

    def _look(self, store: Store, now: int) -> tuple[bool, Row | None]:
        claim = self._attempt.claim
        if self._overtaken and store.write(statements.AWAIT_NEXT, (claim.name, claim.owner)):
            self._poll = _FIRST_POLL
        worthwhile, holder = self._is_worth_trying(store, now, self._attempt)
        process = None if holder is None else holder.process
        if process != self._holder:
            self._close_watch()
        elif process is not None and process != store.process and self._watch is None and not worthwhile:
            try:
                self._watch = store.watch_process(process)
            except OSError:
                pass  # poll instead
        self._holder = process
        return worthwhile, holder

    async def _sleep(self, until: float) -> list[bytes]:
        """The wake-ups that have ended it."""
        runtime = self._access.runtime
        # A negative number: another thread has closed the session; the next look reports it.
        sockets = (self._wakeup, self._watch)
        filenos = [each.fileno() for each in sockets if each is not None and each.fileno() >= 0]
        if not filenos:
            await runtime.sleep_until(until)
            return []
        await runtime.readable(filenos, until)
        if self._watch is not None and self._watch.has_ended():
            self._close_watch()
            self._poll = _POLL_AFTER_DEATH
        return [] if self._wakeup is None else self._wakeup.drain()

    def _enter_queue(self, store: Store, now: int) -> None:
        """Enter the queue, or refresh the entry."""
        attempt, expires = self._attempt, now + int(_ENTRY_TTL * operations.SECOND)
        if store is not self._store:  # the first time, or the file was replaced
            self.abandon()
            self._store = store
            try:
                self._wakeup = store.waiter_socket()
            except OSError:
                self._wakeup = None  # no sockets on this file system: poll
        self._refresh_at = now / operations.SECOND + _ENTRY_TTL / 2
        claim = attempt.claim
        if attempt.queued and store.write(statements.STAY, (expires, claim.name, claim.owner)):
            return
        attempt.queued = True
        socket_name = "" if self._wakeup is None else self._wakeup.name
        described = operations.described(claim, always=True)
        about = (time.time_ns() // 1000, described, claim.mode.label, claim.mode.permits)
        entry = (claim.name, claim.owner, store.process, store.boot, expires, socket_name, *about, claim.name)
        store.write(statements.ENQUEUE, entry)
        self._entries += 1

    async def leave(self) -> bool:
        self.abandon()
        if self._attempt.queued:
            try:
                await self._access.run_retrying(self.timeout, self._leave_queue, self._attempt.claim)
            except (RequestFailed, EngineRefused):
                return False
            self._attempt.queued = False
        return True

    def abandon(self) -> None:
        self._close_watch()
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is None or self._store is None:
            return
        if self._attempt.queued:
            self._store.close_socket(wakeup)  # a wake-up for the entry that stays must find no receiver
        else:
            self._store.keep_waiter_socket(wakeup)

    def _close_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None and self._store is not None:
            self._store.close_socket(watch)
