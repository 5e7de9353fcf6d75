"""How a waiting task is woken: on the connection that all tasks of its event loop share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast._runtime import clock
from holdfast.engines.redis.connections.aio_pipe import Pipe
from holdfast.engines.redis.dialect.packing import Argument, pack
from holdfast.engines.redis.waiting.watch import SUBSCRIPTIONS, BaseWatch

if TYPE_CHECKING:
    from holdfast.engines.redis.connections.aio import AsyncioChannel

#: The loop's clock stops while the machine is suspended: look at the lease clock this often (s).
_SLICE: Final = 2.5
_OPPOSITE: Final = {"SUBSCRIBE": "UNSUBSCRIBE", "SSUBSCRIBE": "SUNSUBSCRIBE"}


class AsyncioWatch(BaseWatch[Pipe]):
    """Listens on the shared connection."""

    def __init__(self, channel: AsyncioChannel) -> None:
        super().__init__(channel)
        self._channel = channel
        self._subject: bytes | None = None
        self._subscribed: Pipe | None = None
        self._notified = False
        self._sleeper: asyncio.Future[None] | None = None

    def wake(self, *, unsubscribed: bool) -> None:
        self._notified = True
        if unsubscribed:
            self._subscribed = None  # by the server: the slot has moved, and may come back
        sleeper = self._sleeper
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(None)

    def close(self) -> None:
        subject, self._subject = self._subject, None
        pipe, self._subscribed = self._subscribed, None
        if subject is not None and self._channel.unlisten(subject, self) and pipe is not None and not pipe.lost:
            for subscribe in SUBSCRIPTIONS[self._host.publish]:
                pipe.unsubscribe(pack((_OPPOSITE[subscribe], subject)), self._timeout)

    async def _connection(self, timeout: float) -> Pipe:
        return await self._channel.open(timeout)

    def _expect(self, connection: Pipe, key: bytes) -> None:
        self._notified = False
        if self._subject != key:
            self.close()
            self._subject = key
            self._channel.listen(key, self)

    def _subscribe(self, connection: Pipe, channel: bytes) -> bool:
        self._notified = False
        if self._subject == channel and self._subscribed is connection:
            return False
        self.close()
        self._subject, self._subscribed = channel, connection
        # Others may have subscribed already, on this connection or on a lost one. Subscribing again does no harm.
        self._channel.listen(channel, self)
        return True

    def _is_lost(self, connection: Pipe) -> bool:
        return connection.lost

    async def _ask(self, connection: Pipe, commands: Sequence[Sequence[Argument]], timeout: float) -> list[Any]:
        return await connection.ask(commands, timeout)

    async def _wait_for_push(self, until: float) -> bool:
        loop = asyncio.get_running_loop()
        while not self._notified:
            left = min(until - clock.now(), _SLICE)
            if left <= 0:
                return False
            self._sleeper = loop.create_future()
            timer = loop.call_later(left, _settle, self._sleeper)
            try:
                await self._sleeper
            finally:
                timer.cancel()
                self._sleeper = None
        return True


def _settle(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
