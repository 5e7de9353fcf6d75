"""The blocking channel: a small pool of connections for threads, and the watchdog's connection that hears of losses."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from typing import Any, Final

from hiredis import PushNotification, ReplyError

from holdfast._runtime import clock
from holdfast._runtime.base import Wakeup
from holdfast._runtime.blocking import BLOCKING
from holdfast.engines.base import RequestFailed, Suspects
from holdfast.engines.redis import pushes
from holdfast.engines.redis.channel import Argument, Script
from holdfast.engines.redis.guard import Guard
from holdfast.engines.redis.handshake import open_socket
from holdfast.engines.redis.packing import pack
from holdfast.engines.redis.requests import call_by_digest, call_by_source, checked, is_unknown_script
from holdfast.engines.redis.settings import Settings
from holdfast.engines.redis.watch import BaseWatch, Way
from holdfast.engines.redis.wire import Wire

#: Idle connections kept: a burst of threads must not leave its sockets behind.
_IDLE_CAP: Final = 16
#: A connection that has rested longer is looked at before it is used: the server may have hung up meanwhile.
_REST: Final = 1.0
#: Waits are cut into slices: a sleep does not notice a suspend, the clock of belief does.
_SLICE: Final = 1.0


class BlockingChannel:
    """Thread-safe: each request in flight has a connection of its own, the one used last is used first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle: list[Wire] = []  # append and pop are atomic: no lock on the hot path
        self._wires: weakref.WeakSet[Wire] = weakref.WeakSet()
        self._closed = False
        self._guard = Guard(self)
        self.way: Way | None = None

    # -- the port --------------------------------------------------------------------------------------------------

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Argument], timeout: float) -> Any:
        reply = self._call(call_by_digest(script, keys, args), timeout)
        if reply.__class__ is ReplyError:
            if is_unknown_script(reply):
                reply = self._call(call_by_source(script, keys, args), timeout)
            return checked(reply)
        return reply

    async def command(self, args: Sequence[Argument], timeout: float) -> Any:
        return checked(self._call(pack(tuple(args)), timeout))

    def watch(self) -> BlockingWatch:
        return BlockingWatch(self)

    async def run_guarded(
        self, script: Script, keys: Sequence[str], args: Sequence[Argument], watched: Sequence[str], timeout: float
    ) -> Any:
        if not self._guard.enter():
            # Two threads at once: the second is no watchdog, and needs no guard.
            return await self.run(script, keys, args, timeout)
        try:
            reply = self._guard.call(call_by_digest(script, keys, args), watched, timeout)
            if is_unknown_script(reply):
                reply = self._guard.call(call_by_source(script, keys, args), watched, timeout)
            return checked(reply)
        finally:
            self._guard.leave()

    async def doze(self, until: float, wakeup: Wakeup) -> Suspects:
        return await self._guard.doze(until, wakeup)

    async def pause(self, seconds: float) -> None:
        await BLOCKING.sleep_until(clock.now() + seconds)

    async def close(self) -> None:
        self._closed = True
        self._drop_idle()
        self._guard.close()

    def after_fork_in_child(self) -> None:
        """Close what was inherited, without a word on it: the parent goes on using the same connections."""
        self._closed = True
        self._idle.clear()
        for wire in list(self._wires):
            wire.close()

    # -- the pool --------------------------------------------------------------------------------------------------

    def _call(self, packed: bytes, timeout: float) -> Any:
        now = time.monotonic()
        deadline = now + timeout
        try:
            wire = self._idle.pop()
        except IndexError:
            wire = None
        if wire is None or now - wire.rested > _REST:
            wire = self.take(timeout, wire)
            timeout = max(deadline - time.monotonic(), 0.001)  # connecting has taken its part
        try:
            wire.send(packed, timeout)
            reply = wire.reply(deadline)
        except BaseException:  # Ctrl-C too: the reply may still come, and must not be taken for the next one's
            self.discard(wire)
            raise
        wire.rested = now
        if self._closed or len(self._idle) >= _IDLE_CAP:
            wire.close()
        else:
            self._idle.append(wire)
        return reply

    def take(self, timeout: float, wire: Wire | None = None) -> Wire:
        """A connection for the caller alone: ``wire`` or an idle one if it is alive, else a new one."""
        while True:
            if wire is None:
                try:
                    wire = self._idle.pop()
                except IndexError:
                    return self.connect(timeout)
            if not wire.is_dead():
                return wire
            wire.close()
            wire = None

    def connect(self, timeout: float) -> Wire:
        """A new connection, not of the pool yet."""
        if self._closed:
            raise RequestFailed(f"{self._settings.address}: this session is closed", may_have_happened=False)
        wire = Wire(open_socket(self._settings, timeout), self._settings.address)
        self._wires.add(wire)
        return wire

    def give_back(self, wire: Wire) -> None:
        """Return a connection on which nothing is in flight."""
        if self._closed or len(self._idle) >= _IDLE_CAP:
            wire.close()
        else:
            self._idle.append(wire)

    def discard(self, wire: Wire) -> None:
        """Drop a connection in an unknown state. Those that rest have probably met the same fate."""
        wire.abort()
        self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return  # another thread was faster


class BlockingWatch(BaseWatch[Wire]):
    """Has a connection of the pool to itself, from the first ``arm`` until ``close``."""

    def __init__(self, channel: BlockingChannel) -> None:
        super().__init__(channel)
        self._channel = channel
        self._wire: Wire | None = None
        self._word = b""
        self._heard = False

    def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is None:
            return
        wire.mute()
        if wire.subscribed:
            wire.close()  # to unsubscribe would be to wait for an answer
        else:
            self._channel.give_back(wire)

    async def _line(self, timeout: float) -> Wire:
        if self._wire is None:
            self._wire = self._channel.take(timeout)
            self._wire.on_push = self._on_push
        return self._wire

    def _expect(self, line: Wire, word: bytes) -> None:
        self._word, self._heard = word, False

    def _subscribe(self, line: Wire, channel: bytes) -> bool:
        self._word, self._heard = channel, False
        new, line.subscribed = not line.subscribed, True
        return new

    def _on_push(self, push: PushNotification) -> None:
        words = pushes.words(push)
        if words is None or self._word in words:
            self._heard = True

    def _is_lost(self, line: Wire) -> bool:
        return self._wire is not line

    async def _ask(self, line: Wire, commands: Sequence[Sequence[Argument]], timeout: float) -> list[Any]:
        try:
            return line.ask(commands, timeout)
        except BaseException:
            self._drop(line)
            raise

    async def _hear(self, until: float) -> bool:
        while not self._heard:
            wire = self._wire
            left = min(until - clock.now(), _SLICE)
            if wire is None:
                return True
            if left <= 0:
                return False
            try:
                wire.listen(left)
            except RequestFailed:
                self._drop(wire)
            except BaseException:
                self._drop(wire)
                raise
        return True

    def _drop(self, wire: Wire) -> None:
        self._wire = None
        self._channel.discard(wire)
