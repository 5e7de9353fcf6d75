"""Waiting for a lock in the engine's queue: watch the predecessor, so that a release wakes one process and not all."""

from __future__ import annotations

import random
from typing import Final

from holdfast._runtime.base import Runtime
from holdfast.engines.base import EXCLUSIVE, READ, Handed, RequestFailed
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.connections.channel import Channel, Watch
from holdfast.engines.redis.dialect import metadata, waiters
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.errors import EngineRefused

#: Look again after this long at most (s), jittered: wake-ups may be lost (expiry is pushed late or never; failover).
_LOOK_AGAIN: Final = 1.0
#: How many at the head of the queue watch the lock itself.
_FRONT: Final = 2
GONE: Final = -2  # PTTL of a key that is not there


class RedisContender:
    """One attempt in the queue. The first two waiters watch the lock itself; every other one its predecessor.

    The second watches the lock too because the first may have died without notice. Not so where only the first may
    acquire: there the second would be woken uselessly, and would retry repeatedly until the first has acquired.
    """

    _has_joined = False  # this queue, under any id
    _own_watch: Watch | None = None

    def __init__(self, channel: Channel, runtime: Runtime, attempt: RedisAttempt, timeout: float) -> None:
        self._channel = channel
        self._runtime = runtime
        self._attempt = attempt
        self._keys = keys_of(attempt.claim.name)
        self.timeout = timeout

    @property
    def _watch(self) -> Watch:
        """Made once it is needed: most waiters have a seat instead."""
        if self._own_watch is None:
            self._own_watch = self._channel.watch()
        return self._own_watch

    async def wait(self, until: float) -> Handed | None:
        keys, watch, now = self._keys, self._watch, self._runtime.now
        while True:
            ahead = await self._queue_up()
            key = keys.name if ahead is None else keys.waiter(ahead)
            left = await watch.arm(key, keys.channel, self.timeout)
            if left != GONE and not await watch.pushed(min(until, self._look_again(left))):
                return None
            if ahead is None or now() >= until:
                return None
            # The predecessor has left, or its key was refreshed: find out which waiter is the predecessor now.

    def _look_again(self, left: int) -> float:
        """When to look again if no push comes. ``left``: PTTL of the key that is watched."""
        now = self._runtime.now()
        wake = now + _LOOK_AGAIN * random.uniform(0.5, 1.0)
        return min(wake, now + (left + 1) / 1000.0) if left >= 0 else wake

    async def leave(self) -> bool:
        waiter = self._attempt.waiter
        self._unwatch()
        if waiter is None:
            return True  # granted: the acquire script has removed it
        try:
            await self._channel.run(waiters.encode_leave(self._keys.name, waiter), self.timeout)
        except (RequestFailed, EngineRefused):
            return False
        self._attempt.waiter = None
        return True

    def abandon(self) -> None:
        self._unwatch()

    def _unwatch(self) -> None:
        if self._own_watch is not None:
            self._own_watch.close()

    async def _queue_up(self) -> str | None:
        """The live predecessor to watch; None: watch the lock."""
        attempt = self._attempt
        position = None
        had_joined, self._has_joined = self._has_joined, True
        if attempt.waiter is not None:
            # An id that is older than this contender belongs to the queue at another server: it is new here.
            position = await self._position(attempt.waiter, join=not had_joined)
        if position is None or not position.queued:
            # A new id for every joining: under the old one the waiter behind would watch one that re-queued behind it.
            attempt.waiter = waiters.new_waiter(attempt.claim.mode)
            position = await self._position(attempt.waiter, join=True)
        return position.ahead

    async def _position(self, waiter: str, *, join: bool) -> waiters.Position:
        attempt = self._attempt
        claim = attempt.claim
        about = metadata.waiter_about(attempt.owner, claim.description) if join else None
        front = 1 if claim.fair or claim.non_barging or claim.mode is not EXCLUSIVE else _FRONT
        reader = claim.mode is READ
        call = waiters.encode_enqueue(self._keys.name, waiter, front=front, about=about, reader=reader)
        return waiters.decode_enqueue(await self._channel.run(call, self.timeout))
