"""The blocking channel: a small pool of connections for threads."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from typing import Any, Final, Self

from hiredis import ReplyError

from holdfast._runtime import clock
from holdfast._runtime.blocking import BLOCKING
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections import in_flight
from holdfast.engines.redis.connections.handshake import open_socket
from holdfast.engines.redis.connections.settings import Server
from holdfast.engines.redis.connections.wire import LATE_REST, NOTHING, Wire
from holdfast.engines.redis.dialect.packing import HELLO, Argument, pack
from holdfast.engines.redis.dialect.replication import acknowledged, around
from holdfast.engines.redis.dialect.replies import (
    Answer,
    checked,
    explained,
    is_demotion,
    is_master,
    is_unknown_script,
)
from holdfast.engines.redis.dialect.requests import Call, Opening, Publish, by_source
from holdfast.engines.redis.waiting.blocking_watch import BlockingWatch
from holdfast.engines.redis.waiting.watch import Way
from holdfast.errors import EngineRefused

#: Idle connections kept: a burst of threads must not leave its sockets behind.
_IDLE_CAP: Final = 16
#: A connection that was idle for longer is checked before it is used: the server may have closed it meanwhile (s).
_REST: Final = 1.0
_monotonic: Final = time.monotonic


class BlockingChannel:
    """See :class:`~holdfast.engines.redis.connections.channel.Channel`.

    Thread-safe: each request in flight has a connection of its own. The connection used last is used first.
    """

    def __init__(self, settings: Server) -> None:
        self._settings = settings
        self._idle: list[Wire] = []  # append and pop are atomic: no lock on the hot path
        self._wires: weakref.WeakSet[Wire] = weakref.WeakSet()
        self.closed = False
        self.way: Way | None = None
        self.wakes = True
        self.clustered = False
        self.publish: Publish = "PUBLISH"
        self.at_rest = True  #: always: a thread that uses a connection closes it itself, once the channel is closed

    # -- the port --------------------------------------------------------------------------------------------------

    async def run(self, call: Call, timeout: float) -> Any:
        reply = self.start(call, call.packed, timeout)
        return self.checked(reply) if reply.__class__ is ReplyError else reply

    def start(self, keys: Opening | Call | None, packed: bytes, timeout: float) -> Any:
        """``keys``: what names the script, if the server may not know it."""
        now, idle = _monotonic(), self._idle
        try:
            wire = idle.pop()
        except IndexError:
            wire = None
        if wire is None or now - wire.rested > _REST or wire.address != self._settings.address:
            deadline = now + timeout
            wire = self.take(timeout, wire)
            now = time.monotonic()
            timeout = max(deadline - now, 0.001)  # connecting has taken its part
        try:
            reply = wire.call(packed, timeout, now)
        except BaseException:  # Ctrl-C too: the reply may still come, and must not be taken for the next one's
            self.discard(wire)
            raise
        wire.rested = now
        if self.closed or len(idle) >= _IDLE_CAP:
            wire.close()
        else:
            idle.append(wire)
        if reply.__class__ is ReplyError and keys is not None and is_unknown_script(reply):
            return self.start(None, by_source(keys.script, packed), max(now + timeout - time.monotonic(), 0.001))
        return reply

    async def run_acknowledged(
        self, call: Call, replicas: int, timeout: float, *, asking: bool = False
    ) -> tuple[Any, int]:
        deadline = time.monotonic() + timeout
        replies = self._exchange(around(call.packed, replicas, timeout, asking=asking), timeout)
        if is_unknown_script(replies[asking]):
            timeout = max(deadline - time.monotonic(), 0.001)
            replies = self._exchange(around(call.by_source(), replicas, timeout, asking=asking), timeout)
        for reply in replies:
            self.look_for_demotion(reply)
        return acknowledged(replies, replicas)

    async def command(self, args: Sequence[Argument], timeout: float) -> Any:
        return self.checked(self.start(None, pack(tuple(args)), timeout))

    async def servers(self, timeout: float) -> Sequence[Self]:
        return (self,)

    def watch(self) -> BlockingWatch:
        return BlockingWatch(self)

    async def pause(self, seconds: float) -> None:
        await BLOCKING.sleep_until(clock.now() + seconds)

    async def close(self) -> None:
        self.closed = True
        self._drop_idle()

    def after_fork_in_child(self) -> None:
        """Close what was inherited without writing to it: the parent goes on using the same connections."""
        self.closed = True
        self._idle.clear()
        for wire in list(self._wires):
            wire.close()

    # -- several calls together ------------------------------------------------------------------------------------

    def launch(self, wire: Wire, calls: Sequence[Call], replicas: int, until: float) -> in_flight.InFlight:
        """Send ``calls`` on a connection of the pool."""
        try:
            return in_flight.send(wire, calls, replicas, max(until - time.monotonic(), 0.001), tracked=False)
        except BaseException:
            self.discard(wire)
            raise

    def land(self, sent: in_flight.InFlight, deadline: float) -> Sequence[Answer]:
        """The answers to what was launched."""
        try:
            answers = in_flight.receive(sent, deadline)
        except (RequestFailed, EngineRefused) as failure:
            self.discard(sent.wire)
            return [failure] * len(sent.calls)
        except BaseException:
            self.discard(sent.wire)
            raise
        self.give_back(sent.wire)
        for answer in answers:
            self.look_for_demotion(answer)
        return [explained(answer) for answer in answers]

    def lend(self, address: str, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer] | None:
        """See :class:`~holdfast.engines.redis.connections.blocking_keeper.Lender`."""
        now = time.monotonic()
        until = now + timeout
        wire = self.take_idle(now) if address == self._settings.address else None
        if wire is None:
            return None
        try:
            # A demoted server would report locks as gone which the new master has. The demotion may be the reason why
            # it refused the watchdog's connection.
            if not is_master(self._greeted(wire, until)):
                self.discard(wire)
                return None
            return self.land(self.launch(wire, calls, replicas, until), until)
        except RequestFailed as failure:
            return [failure] * len(calls)

    def _greeted(self, wire: Wire, until: float) -> Any:
        try:
            now = time.monotonic()
            return wire.call(HELLO, max(until - now, 0.001), now)
        except BaseException:
            self.discard(wire)
            raise

    # -- requests and their replies --------------------------------------------------------------------------------

    def _exchange(self, requests: Sequence[bytes], timeout: float) -> list[Any]:
        """Send ``requests`` in one buffer, with nothing between them; all their replies."""
        deadline = time.monotonic() + timeout
        wire = self._start(b"".join(requests), timeout, len(requests))
        try:
            answers = [wire.late_reply(deadline) for _ in requests]
        except BaseException:
            self.discard(wire)
            raise
        self.give_back(wire)
        return answers

    def _start(self, packed: bytes, timeout: float, replies: int) -> Wire:
        """Send on a connection of the pool, which must be given back or discarded."""
        try:
            wire = self._idle.pop()
        except IndexError:
            wire = self.connect(timeout)
        if time.monotonic() - wire.rested > _REST or wire.address != self._settings.address:
            wire = self.take(timeout, wire)
        try:
            wire.send(packed, timeout, replies)
        except BaseException:
            self.discard(wire)
            raise
        return wire

    def finish(self, wire: Wire, call: Call, deadline: float, reply: Any) -> Answer:
        """The answer to the one ``call`` that was sent on ``wire``, a connection of the pool. ``reply``: if it has been
        read already, else ``NOTHING``."""
        try:
            if reply is NOTHING:
                reply = wire.late_reply(deadline)
            if reply.__class__ is ReplyError and is_unknown_script(reply):
                now = time.monotonic()
                reply = wire.call(call.by_source(), max(deadline - now, LATE_REST), now)
        except RequestFailed as failure:
            self.discard(wire)
            return failure
        except BaseException:
            self.discard(wire)
            raise
        self.give_back(wire)
        if reply.__class__ is not ReplyError:
            return reply
        self.look_for_demotion(reply)
        return explained(reply)

    def checked(self, reply: Any) -> Any:
        """``reply``, or the exception that it means."""
        if reply.__class__ is ReplyError:
            self.look_for_demotion(reply)
        return checked(reply)

    def look_for_demotion(self, reply: Any) -> None:
        """If the server is no master any more, the next request finds out which server is the master now."""
        if is_demotion(reply):
            self._drop_idle()

    # -- the pool --------------------------------------------------------------------------------------------------

    @property
    def has_idle(self) -> bool:
        return bool(self._idle)

    def take_idle(self, now: float) -> Wire | None:
        """A connection of the pool that can be used immediately; None: there is none. Never waits."""
        while True:
            try:
                wire = self._idle.pop()
            except IndexError:
                return None
            if wire.address == self._settings.address and (now - wire.rested <= _REST or not wire.is_dead()):
                return wire
            wire.close()

    def warm(self, timeout: float) -> None:
        """Opens a connection if none is idle."""
        self.give_back(self.connect(timeout))

    def take(self, timeout: float, wire: Wire | None = None) -> Wire:
        """A connection for the caller alone: ``wire`` or an idle one if it is alive, else a new one."""
        while True:
            if wire is None:
                try:
                    wire = self._idle.pop()
                except IndexError:
                    return self.connect(timeout)
            if self.leads_there(wire) and (time.monotonic() - wire.rested <= _REST or not wire.is_dead()):
                return wire
            wire.close()
            wire = None

    def leads_there(self, wire: Wire) -> bool:
        """Whether ``wire`` leads to the server that is the right one now. After a failover another server may be. A
        client that used both could acquire at one and renew at the other."""
        return wire.address == self._settings.address

    def connect(self, timeout: float) -> Wire:
        """A new connection, not of the pool yet."""
        if self.closed:
            raise RequestFailed(f"{self._settings.address}: this session is closed", may_have_happened=False)
        wire = Wire(*open_socket(self._settings, timeout))
        wire.rested = time.monotonic()
        self._wires.add(wire)
        return wire

    def give_back(self, wire: Wire) -> None:
        """Return a connection on which nothing is in flight."""
        wire.rested = time.monotonic()
        if wire.owed:
            # A signal interrupted a thread before it discarded the connection. Reused, it would return a stale reply.
            wire.abort()
        elif len(self._idle) >= _IDLE_CAP:
            wire.close()
        else:
            self._idle.append(wire)
            if self.closed:  # perhaps at this moment: the thread that closed it has not seen this connection
                self._drop_idle()

    def discard(self, wire: Wire) -> None:
        """Drop a connection in an unknown state. The idle ones are probably lost too."""
        wire.abort()
        self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return  # another thread was faster
