"""Waiting for a change of one key: of a register, of a waiter's wake-up, of a lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast._runtime.base import Runtime
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections.channel import Channel
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.engines.redis.dialect.packing import Argument
from holdfast.errors import EngineRefused

#: How long a listener's request may take (s).
_TIMEOUT: Final = 1.0
#: A listener that cannot arm returns after this long: its waiter looks for itself (s).
_LOOK_YOURSELF: Final = 0.5


class RedisListener:
    """See :class:`holdfast.engines.registers.RegisterListener`.

    ``words``: the plain command that reads what is listened to, whose second word is the key. ``subject``: the channel
    on which changes are published, where there is no tracking.

    A push ends the tracking of its key. It is tracked again when the next wait begins: nearly always the waiter goes to
    its lock instead. Another value than the last one that was read is a wake-up.
    """

    def __init__(self, channel: Channel, runtime: Runtime, words: Sequence[Argument], subject: str) -> None:
        self._runtime = runtime
        self._words = words
        self._subject = subject
        self._watch = channel.watch()
        self._armed = False
        self._wait_ended = False
        self._read: Any = None

    async def arm(self) -> None:
        await self._arm(_TIMEOUT)

    async def wait(self, until: float) -> None:
        if not self._armed:
            before, now = self._read, self._runtime.now()
            if now >= until:
                return
            try:
                await self._arm(min(until - now, _TIMEOUT))
            except (RequestFailed, EngineRefused):
                await self._runtime.sleep_until(min(until, now + _LOOK_YOURSELF))
                return
            if self._read != before:
                return
        pushed = not self._wait_ended and await self._pushed(until)
        if self._wait_ended:
            self._wait_ended = False  # what was pushed is reported by the next wait
        elif pushed:
            self._armed = False

    def end_wait(self) -> None:
        self._wait_ended = True
        self._watch.end_wait()

    async def _pushed(self, until: float) -> bool:
        return await self._watch.pushed(until)

    async def _arm(self, timeout: float) -> None:
        self._read = await self._watch.arm_reading(self._words, self._subject, timeout)
        self._armed = True

    def close(self) -> None:
        self._watch.close()


class LockListener(RedisListener):
    """Listens to a lock. Renewals are pushed, too; where Redis publishes messages only, a new holder is not.

    A lock reads the same before it is taken and after it was released. So what was read before a push says nothing:
    each arming after one is a wake-up, and the caller looks once more with the key tracked.
    """

    def __init__(self, channel: Channel, runtime: Runtime, name: str) -> None:
        keys = keys_of(name)
        super().__init__(channel, runtime, ("PTTL", keys.name), keys.channel)

    async def _pushed(self, until: float) -> bool:
        if self._watch.polls:
            # The caller looks from time to time: many looks a second are for the waiters of a lock.
            await self._runtime.sleep_until(until)
            return False
        pushed = await super()._pushed(until)
        if pushed:
            self._read = None
        return pushed
