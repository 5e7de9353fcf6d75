"""How a waiting thread is woken: on a connection that it has to itself while it waits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from hiredis import PushNotification, ReplyError

from holdfast._runtime import clock
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections.wire import Wire
from holdfast.engines.redis.dialect import pushes
from holdfast.engines.redis.dialect.packing import Argument
from holdfast.engines.redis.dialect.replies import is_unknown_script
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.waiting.watch import BaseWatch

if TYPE_CHECKING:
    from holdfast.engines.redis.connections.blocking import BlockingChannel

#: Locks in a cluster that one connection listens for at most.
_MOST_WAKES: Final = 64
#: Waits are cut into slices (s): a sleep does not notice that the machine was suspended, the lease clock does.
_SLICE: Final = 1.0


class BlockingWatch(BaseWatch[Wire]):
    """Has a connection of the pool to itself, from the first ``arm`` until ``close``."""

    _wire: Wire | None = None
    _subject = b""
    _notified = False
    _subscribed = False
    _waiter = b""
    _seated: Wire | None = None
    handed: int | None = None

    def __init__(self, channel: BlockingChannel) -> None:
        self._host = self._channel = channel

    def __del__(self) -> None:
        if self._wire is not None:  # a signal has interrupted the caller between taking a seat and waiting on it
            self.close()

    @property
    def lost(self) -> bool:
        wire = self._wire
        return wire is None or self._seated is not wire or not self._channel.leads_there(wire)

    async def run(self, call: Call, timeout: float) -> Any:
        wire, now = self._seated, time.monotonic()
        if wire is None or wire is not self._wire:
            raise RequestFailed("the connection was lost", may_have_happened=False)
        try:
            reply = wire.call(call.packed, timeout, now)
            if reply.__class__ is not ReplyError:
                return reply
            if is_unknown_script(reply):
                reply = wire.call(call.by_source(), timeout, time.monotonic())
        except BaseException:
            self._drop(wire)
            raise
        return self._channel.checked(reply)

    def close(self) -> None:
        wire, self._wire = self._wire, None
        self._seated = None
        if wire is None:
            return
        wire.mute()
        # What was pushed just now has proved that it is alive.
        dead = self.handed is None and wire.is_dead()
        if wire.subscribed or dead or (wire.wakes is not None and len(wire.wakes.subjects) > _MOST_WAKES):
            wire.close()  # to unsubscribe would be to wait for a reply; a dead connection would fail its next user
        else:
            self._channel.give_back(wire)

    async def _connection(self, timeout: float) -> Wire:
        wire = self._wire
        if wire is not None and (wire.owed or not self._channel.leads_there(wire)):
            # It leads to another server than the one that is asked to acquire. There the lock may stay free.
            self._drop(wire)
            wire = None
        if wire is None:
            wire = self._wire = self._channel.take(timeout)
            self._subscribed, wire.on_push = False, self._on_push
        return wire

    def _expect(self, connection: Wire, key: bytes) -> None:
        self._subject, self._notified = key, False

    def _subscribe(self, connection: Wire, channel: bytes) -> bool:
        self._subject, self._notified = channel, False
        new, self._subscribed = not self._subscribed, True
        connection.subscribed = True
        return new

    def _sit(self, connection: Wire, waiter: bytes) -> None:
        self._seated, self._waiter, self._notified, self.handed = connection, waiter, False, None

    def _on_push(self, push: PushNotification) -> None:
        handed = pushes.handed(push)
        if handed is not None:
            if handed.waiter == self._waiter:  # else it was for an earlier one on this connection
                self._notified = True
                self.handed = handed.token if self.handed is None else self.handed
            return
        moved = pushes.unsubscribed(push)
        if moved is not None and self._wire is not None and self._wire.wakes is not None:
            self._wire.wakes.subjects.discard(moved)
            self._seated, self._notified = None, True
            return
        subjects = pushes.subjects(push)
        if subjects is None or self._subject in subjects:
            self._notified = True
            if push[0] == pushes.UNSUBSCRIBED:
                self._subscribed = False  # by the server: the slot has moved, and may come back

    def _is_lost(self, connection: Wire) -> bool:
        return self._wire is not connection

    async def _ask(self, connection: Wire, commands: Sequence[Sequence[Argument]], timeout: float) -> list[Any]:
        try:
            return connection.ask(commands, timeout)
        except BaseException:
            self._drop(connection)
            raise

    async def _wait_for_push(self, until: float) -> bool:
        while not self._notified:
            wire = self._wire
            left = min(until - clock.now(), _SLICE)
            if wire is None:
                return True
            try:
                # Also when the time is up: what has arrived may be what it waits for.
                if not wire.listen(max(left, 0.0)) and left <= 0:
                    return False
            except RequestFailed:
                self._drop(wire)
            except BaseException:
                self._drop(wire)
                raise
        return True

    def _drop(self, wire: Wire) -> None:
        self._wire = None
        self._channel.discard(wire)
