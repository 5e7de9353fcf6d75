"""Waiting for a read-write lock or a semaphore in the engine's queue: watch what may make room."""

from __future__ import annotations

from typing import Final

from holdfast.engines.base import Handed, Kind
from holdfast.engines.redis.dialect.keys import shared_keys_of
from holdfast.engines.redis.waiting.contender import GONE, RedisContender

#: A watch without a push may be at a server that does not have the slot any more (s).
_ARM_AGAIN: Final = 5.0


class SharedContender(RedisContender):
    """One attempt in the queue. It watches the nearest live waiter before it that it conflicts with: a reader the next
    writer, any other the next waiter. If there is none, it watches the object itself.

    A lock that is there is held. But that a read-write lock or a semaphore is there says nothing about whether there is
    room: only an acquire finds out. So each return for an acquire has the watch armed before it. If it is busy, nothing
    that happens after it can be missed.
    """

    _armed: str | None = None  # the key whose next change is pushed
    _armed_at: float = 0.0
    _left: int = -1  # its PTTL when it was armed

    async def wait(self, until: float) -> Handed | None:
        keys, now = self._keys, self._runtime.now
        while True:
            ahead = await self._queue_up()
            key = keys.name if ahead is None else keys.waiter(ahead)
            if key != self._armed or now() >= self._armed_at + _ARM_AGAIN:
                await self._arm(key)
                if ahead is None:
                    return None  # there may be room since the last acquire
                if self._left == GONE:
                    self._armed = None
                    if now() >= until:
                        return None
                    continue
            if not await self._watch.pushed(min(until, self._look_again(self._left))):
                return None
            self._armed = None
            if ahead is None:
                await self._arm(key)
                return None
            if now() >= until:
                return None
            # The conflicting predecessor has left, or its key was refreshed: find out what to watch now.

    async def _arm(self, key: str) -> None:
        self._armed = None  # unless this succeeds
        shared = shared_keys_of(self._keys.name)
        is_rwlock = self._attempt.claim.mode.kind is Kind.RWLOCK
        channel = shared.rwlock_channel if is_rwlock else shared.permits_channel
        self._left = await self._watch.arm(key, channel, self.timeout)
        self._armed, self._armed_at = key, self._runtime.now()
