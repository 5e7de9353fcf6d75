"""How a waiting task is woken: on the connection that all tasks of its event loop share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast._runtime.asyncio_sleeps import settled
from holdfast.engines.redis.connections.aio_pipe import Pipe
from holdfast.engines.redis.dialect.packing import Argument, pack
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.waiting.watch import SUBSCRIPTIONS, BaseWatch

if TYPE_CHECKING:
    from holdfast.engines.redis.connections.aio import AsyncioChannel

_OPPOSITE: Final = {"SUBSCRIBE": "UNSUBSCRIBE", "SSUBSCRIBE": "SUNSUBSCRIBE"}


class AsyncioWatch(BaseWatch[Pipe]):
    """Listens on the shared connection."""

    def __init__(self, channel: AsyncioChannel) -> None:
        super().__init__(channel)
        self._channel = channel
        self._subject: bytes | None = None
        self._subscribed: Pipe | None = None
        self._notified = False
        self._sleeper: asyncio.Future[bool] | None = None
        self._waiter = b""
        self._seated: Pipe | None = None
        self.handed: int | None = None

    @property
    def lost(self) -> bool:
        return self._seated is None or self._seated.lost or not self._channel.leads_there(self._seated)

    async def run(self, call: Call, timeout: float) -> Any:
        return await self._channel.run(call, timeout)

    def hand(self, token: int | None) -> None:
        """A release has handed the lock over; None: it asks the waiter to look."""
        self.handed = token if self.handed is None else self.handed
        self.wake(unsubscribed=False)

    def leave_seat(self) -> None:
        """What is pushed to it may not arrive any more."""
        self._seated = None
        self.wake(unsubscribed=False)

    def wake(self, *, unsubscribed: bool) -> None:
        self._notified = True
        if unsubscribed:
            self._subscribed = None  # by the server: the slot has moved, and may come back
        self._settle()

    def end_wait(self) -> None:
        super().end_wait()
        self._settle()

    def _settle(self) -> None:
        sleeper = self._sleeper
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(True)

    def close(self) -> None:
        if self._waiter:
            self._channel.seats.pop(self._waiter, None)
            self._waiter, self._seated = b"", None
        self._unwatch()

    def _unwatch(self) -> None:
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
            self._unwatch()
            self._subject = key
            self._channel.listen(key, self)

    def _sit(self, connection: Pipe, waiter: bytes) -> None:
        self._channel.seats.pop(self._waiter, None)
        self._seated, self._waiter, self._notified, self.handed = connection, waiter, False, None
        self._channel.seats[waiter] = self

    def _subscribe(self, connection: Pipe, channel: bytes) -> bool:
        self._notified = False
        if self._subject == channel and self._subscribed is connection:
            return False
        self._unwatch()
        self._subject, self._subscribed = channel, connection
        # Others may have subscribed already, on this connection or on a lost one. Subscribing again does no harm.
        self._channel.listen(channel, self)
        return True

    def _is_lost(self, connection: Pipe) -> bool:
        return connection.lost

    async def _ask(self, connection: Pipe, commands: Sequence[Sequence[Argument]], timeout: float) -> list[Any]:
        return await connection.ask(commands, timeout)

    async def _wait_for_push(self, until: float) -> bool:
        if not self._notified:
            self._sleeper = asyncio.get_running_loop().create_future()
            try:
                await settled(self._sleeper, until)
            finally:
                self._sleeper = None
        return self._notified
