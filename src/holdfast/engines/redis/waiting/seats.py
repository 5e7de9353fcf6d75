"""Joining the queue of a lock in the same request that finds it busy: with a seat, to which a release pushes the lock.

See ``scripts/acquire_or_join.lua`` and ``scripts/hand_over.lua``.
"""

from __future__ import annotations

import time
from typing import Final

from holdfast._runtime.base import Runtime
from holdfast.engines.base import Busy, Granted
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.connections.channel import Channel
from holdfast.engines.redis.dialect import grants, waiters
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.engines.redis.dialect.packing import Argument

wall_clock: Final = time.time
#: For so long (s) a waiter only waits for the push. Later it also watches the lock, and refreshes its place: another
#: program may release the lock, or it may expire. So a short wait costs no request, and the wake-up by others may be
#: late by so much, once. Where the last wait took longer, it is some times that.
ONLY_WAIT: Final = 0.05
_LONGEST_WAIT_ALONE: Final = 0.4
_WAITS: Final = 3
#: A lock that was found free so often in a row is not contended any more.
_FREE_IN_A_ROW: Final = 16
#: Names that are known to be contended; beyond that all are forgotten.
_KEPT: Final = 1024


class Seats:
    """The seats of one session."""

    def __init__(self, channel: Channel, runtime: Runtime, encoder: grants.AcquireEncoder) -> None:
        self._channel = channel
        self._runtime = runtime
        self._encoder = encoder
        #: Names of locks that were found busy, and how often they may yet be found free before they are dropped: a
        #: claim that is going to wait for one joins with its first request.
        self.contended: dict[str, int] = {}
        self._waits_for: dict[str, float] = {}

    async def join(self, attempt: RedisAttempt, timeout: float) -> Granted | grants.Joined | Busy | None:
        """Take the lock, or join its queue; None: nothing was done, the server allows no seats.

        A seat that the attempt has is used again. What it was in the queue before, it is not any more.
        """
        seat, claim = attempt.seat, attempt.claim
        if seat is None:
            seat = attempt.seat = self._channel.watch()
        try:
            waiter = waiters.new_waiter(claim.mode)
            wire = await seat.take_seat(keys_of(claim.name).channel, f"{waiter} {attempt.owner}", timeout)
            if wire is None:
                attempt.abandon()
                return None
            before: tuple[Argument, ...] = () if attempt.waiter is None else (attempt.waiter,)
            if attempt.entry is not None:
                before += (attempt.entry,)
            call, entry = self._encoder.encode_joining(
                attempt, waiters.seat_at(waiter, wire, claim.ttl, wall_clock()), before
            )
            sent = self._runtime.now()
            attempt.waiter, attempt.entry = waiter, entry
            answer = grants.decode_joining(await seat.run(call, timeout))
        except BaseException:
            attempt.abandon()
            raise
        if isinstance(answer, grants.Joined):
            attempt.confirmed = sent
            attempt.joined = sent
            attempt.waits_until = sent if answer.watch else sent + self._waits_for.get(claim.name, ONLY_WAIT)
            if len(self.contended) >= _KEPT:
                self.contended.clear()
            self.contended[claim.name] = _FREE_IN_A_ROW
            return answer
        if (left := self.contended.pop(claim.name, 0)) > 1:
            self.contended[claim.name] = left - 1
        attempt.left_queue()
        attempt.abandon()
        return answer

    def handed_over(self, attempt: RedisAttempt) -> None:
        """It was handed the lock just now, after its wait in the queue."""
        waits_for = min(_WAITS * (self._runtime.now() - attempt.joined), _LONGEST_WAIT_ALONE)
        if waits_for > ONLY_WAIT and len(self._waits_for) < _KEPT:
            self._waits_for[attempt.claim.name] = waits_for
        elif self._waits_for:
            self._waits_for.pop(attempt.claim.name, None)
