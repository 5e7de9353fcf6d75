"""Waiting for a lock on one server or in a cluster: a release hands it over to the first waiter, and pushes the token.

The waiter holds the lock when the push arrives: no request is needed. How long the lock is its own then counts from the
last request that was answered over the same connection, for the release came later. Its lease is short, so that a
waiter which has died costs little, and the watchdog confirms it soon. Whatever goes wrong (a push that is lost, or that
comes late), the claim asks as ever, and finds that the lock is its own.
"""

from __future__ import annotations

from holdfast._runtime.base import Runtime
from holdfast.engines.base import Granted, Handed, RequestFailed
from holdfast.engines.redis import modes
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.connections.channel import Channel, Watch
from holdfast.engines.redis.dialect import waiters
from holdfast.engines.redis.dialect.replies import OtherKind, WrongType
from holdfast.engines.redis.waiting.contender import GONE, RedisContender
from holdfast.engines.redis.waiting.seats import Seats
from holdfast.errors import EngineRefused


class DirectContender(RedisContender):
    """One attempt in the queue. After a while the first watches the lock too, every other one its predecessor.

    Where the server allows no seat, it waits and competes as any :class:`RedisContender` does.
    """

    _refused = False
    _dropped = False  # its place in the queue is gone: taken for dead, or it was given the lock

    def __init__(self, channel: Channel, runtime: Runtime, attempt: RedisAttempt, timeout: float, seats: Seats) -> None:
        super().__init__(channel, runtime, attempt, timeout)
        self._seats = seats

    async def wait(self, until: float) -> Handed | None:
        attempt, now = self._attempt, self._runtime.now
        while not self._refusing():
            seat = attempt.seat
            if seat is None or seat.lost or self._dropped:
                granted, seat = await self._join(), attempt.seat
                if seat is None and granted is None and self._refusing():
                    break
                if seat is None:
                    return granted
            waits_until = attempt.waits_until
            if not await seat.pushed(min(until, waits_until)) and now() < waits_until:
                return None
            attempt.waits_until = 0.0
            if (handed := self._handed(seat)) is not None:
                return handed
            if not seat.lost:
                return await self._watch_too(seat, until)
        await super().wait(until)
        return None

    def _refusing(self) -> bool:
        return self._refused

    async def _join(self) -> Handed | None:
        """Its first request has found the lock busy, and has not joined; or it has lost its place. If it is busy again,
        the attempt has a seat then. What it is granted counts as handed over: no register was read with it."""
        attempt, sent = self._attempt, self._runtime.now()
        self._dropped = False
        try:
            answer = await self._seats.join(attempt, self.timeout)
        except (WrongType, OtherKind):
            return None  # the next request explains it
        except RequestFailed as failure:
            attempt.unresolved |= failure.may_have_happened  # it may have been granted
            raise
        self._refused = answer is None
        return Handed(answer.token, sent, attempt.claim.ttl) if isinstance(answer, Granted) else None

    def _handed(self, seat: Watch) -> Handed | None:
        if seat.handed is None:
            return None
        attempt = self._attempt
        attempt.left_queue()
        self._seats.handed_over(attempt)
        return Handed(seat.handed, attempt.confirmed, waiters.handed_over_for(attempt.claim.ttl))

    async def _watch_too(self, seat: Watch, until: float) -> Handed | None:
        keys, now = self._keys, self._runtime.now
        while True:
            sent = now()
            position = await self._look(seat)
            if seat.handed is None:
                if not position.queued:
                    self._dropped = True  # unless the next request finds that it was given the lock
                    return None
                self._attempt.confirmed = sent
                key = keys.name if position.ahead is None else keys.waiter(position.ahead)
                left = await seat.arm(key, keys.channel, self.timeout)
                pushed = left == GONE or await seat.pushed(min(until, self._look_again(left)))
                if self._is_over(seat, position, pushed, until):
                    return None
            if (handed := self._handed(seat)) is not None:
                return handed
            # The predecessor has left, or its key was refreshed: find out which waiter is the predecessor now.

    def _is_over(self, seat: Watch, position: waiters.Position, pushed: bool, until: float) -> bool:
        """Whether it is to ask now, rather than to look for its predecessor once more."""
        again = position.ahead is not None and pushed and not seat.lost and self._runtime.now() < until
        return seat.handed is None and not again

    async def _look(self, seat: Watch) -> waiters.Position:
        """At the seat, over its connection. An answer to any other request would not say when a push was sent: the
        claim may have been handed the lock, and have lost it again, while the push is on its way."""
        attempt = self._attempt
        assert attempt.waiter is not None
        call = waiters.encode_enqueue(self._keys.name, attempt.waiter, front=1, about=None, entry=attempt.entry)
        return waiters.decode_enqueue(await seat.run(call, self.timeout))

    async def leave(self) -> bool:
        """As a withdrawal, since the lock may have been handed over to it."""
        attempt, channel = self._attempt, self._channel
        waiter, entry = attempt.waiter, attempt.entry
        self.abandon()
        if waiter is None or entry is None:
            return await super().leave()
        try:
            await channel.run(
                modes.release(attempt, attempt.owner, channel.publish, tombstone=None, waiter=waiter, entry=entry),
                self.timeout,
            )
        except (RequestFailed, EngineRefused):
            return False
        attempt.left_queue()
        return True

    def abandon(self) -> None:
        super().abandon()
        self._attempt.abandon()
