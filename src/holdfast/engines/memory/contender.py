"""A waiting claim: a place in the queue of its name."""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING

from holdfast._runtime.base import Event
from holdfast.engines.base import EXCLUSIVE, SimpleAttempt
from holdfast.engines.memory import shared_names
from holdfast.engines.memory.store import TURN_LASTS, Name, Place

if TYPE_CHECKING:
    from holdfast.engines.memory.session import MemorySession


class MemoryContender:
    """See :class:`holdfast.engines.base.Contender`."""

    def __init__(self, session: MemorySession, attempt: SimpleAttempt) -> None:
        self._session = session
        self._attempt = attempt
        self._claim = claim = attempt.claim
        self.timeout = 0.0  # none of its requests takes time
        self.turn: Event = session.runtime.event()
        self._place = Place(claim.owner, claim.description, time.time(), weakref.ref(self), claim.mode)

    async def wait(self, until: float) -> None:
        now = self._session.runtime.now()
        self.turn = turn = self._session.runtime.event()  # before the look: a later change sets this one
        self._place.notified = None
        if self._claim.mode is not EXCLUSIVE:
            await self._wait_for_share(turn, now, until)
            return
        record = self._queued(now)
        entry, head = record.live(now), record.head(now)
        if entry is not None:
            until = min(until, entry.expires)
        elif head is None or head is self._place:
            return
        else:
            head.notify(now)
            until = min(until, (head.notified or now) + TURN_LASTS)
        await turn.wait(until)

    async def _wait_for_share(self, turn: Event, now: float, until: float) -> None:
        self._attempt.queued = True
        record = shared_names.joined(self._session.store, self._place, self._claim.name, now)
        longest = shared_names.waits(record, self._place, now)
        if longest is not None:
            await turn.wait(min(until, longest))

    def _queued(self, now: float) -> Name:
        """Take a place in the queue, if it has none."""
        store, name, place = self._session.store, self._claim.name, self._place
        self._attempt.queued = True
        while True:
            forgotten, record = store.forgotten, store.names.get(name)
            if record is None:
                queued = Name(forgotten, None, (place,))
            elif place in record.queue or record.shared is not None:
                return record
            else:
                queued = Name(record.token, record.entry, (*record.queue_without(place.owner), place))
            if store.replace(name, record, forgotten, queued):
                return queued

    async def leave(self) -> bool:
        self.abandon()
        return True

    def abandon(self) -> None:
        # If it was the head, the wake-up may have been for it: it is passed on.
        self._session.store.leave(self._claim.name, self._claim.owner, self._session.runtime.now())
