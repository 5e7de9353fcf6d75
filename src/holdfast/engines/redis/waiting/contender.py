"""Waiting in the engine's queue: watch the waiter in front, so that a release wakes one process and not all."""

from __future__ import annotations

import random
import secrets
from typing import Any, Final

from holdfast._runtime.base import Runtime
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.connections.channel import Channel
from holdfast.engines.redis.dialect import metadata
from holdfast.engines.redis.dialect.keys import Keys
from holdfast.engines.redis.scripts import ENQUEUE, LEAVE
from holdfast.errors import EngineRefused

#: A waiter that has not looked for this long is taken for dead. Looking happens at least once a second.
_WAITER_TTL_MS: Final = 5000
_QUEUE_TTL_MS: Final = 2 * _WAITER_TTL_MS
#: Look again after this long at most, jittered: wake-ups may be lost (expiry is pushed late or never; failover).
_LOOK_AGAIN: Final = 1.0
_GONE: Final = -2  # PTTL of a key that is not there


class RedisContender:
    """One claim in line. The first two watch the lock itself; everybody else the waiter in front.

    The second watches too because the first may be dead without anybody knowing yet. Not so where only the first may
    acquire: there the second would be woken in vain, and go round in circles while the first takes its time.
    """

    def __init__(self, channel: Channel, runtime: Runtime, attempt: RedisAttempt, keys: Keys, timeout: float) -> None:
        self._channel = channel
        self._runtime = runtime
        self._attempt = attempt
        self._keys = keys
        self.timeout = timeout
        self._front = 1 if attempt.claim.fair or attempt.claim.non_barging else 2
        self._stood = False  # in this line, under any id
        self._watch = channel.watch()

    async def wait(self, until: float) -> None:
        keys, watch, now = self._keys, self._watch, self._runtime.now
        while True:
            ahead = await self._stand_in_line()
            key = keys.name if ahead is None else keys.waiter(ahead)
            left = await watch.arm(key, keys.channel, self.timeout)
            if left != _GONE:
                wake = now() + _LOOK_AGAIN * random.uniform(0.5, 1.0)
                if left >= 0:
                    wake = min(wake, now() + (left + 1) / 1000.0)
                if not await watch.pushed(min(until, wake)):
                    return
            if ahead is None or now() >= until:
                return
            # The one in front has gone, or stirred: see who is in front now.

    async def leave(self) -> bool:
        waiter = self._attempt.waiter
        self._watch.close()
        if waiter is None:
            return True  # granted: the acquire script has removed it
        keys = self._keys
        try:
            await self._channel.run(LEAVE, (keys.queue, keys.waiter(waiter)), (waiter,), self.timeout)
        except (RequestFailed, EngineRefused):
            return False
        self._attempt.waiter = None
        return True

    def abandon(self) -> None:
        self._watch.close()

    async def _stand_in_line(self) -> str | None:
        """The live waiter in front to watch, or None: watch the lock."""
        attempt = self._attempt
        reply: Any = -1
        stood, self._stood = self._stood, True
        if attempt.waiter is not None:
            # An id that was there before this contender is that of a line at another server: here it is new.
            reply = await self._enqueue(attempt.waiter, join=not stood)
        if reply == -1:
            # A new id for every joining: under the old one the waiter behind would watch one that re-queued behind it.
            attempt.waiter = secrets.token_hex(8)
            reply = await self._enqueue(attempt.waiter, join=True)
        return reply.decode() if isinstance(reply, bytes) else None

    async def _enqueue(self, waiter: str, *, join: bool) -> Any:
        keys = self._keys
        about = metadata.waiter_about(self._attempt) if join else b""
        args = (waiter, _WAITER_TTL_MS, _QUEUE_TTL_MS, int(join), self._front, about)
        return await self._channel.run(ENQUEUE, (keys.queue, keys.waiter(waiter)), args, self.timeout)
