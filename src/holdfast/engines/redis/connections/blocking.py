"""The blocking channel: a small pool of connections for threads, and the watchdog's connection that hears of losses."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol, Self

from hiredis import PushNotification, ReplyError

from holdfast._runtime import clock
from holdfast._runtime.base import Wakeup
from holdfast._runtime.blocking import BLOCKING
from holdfast.engines.base import RequestFailed, Suspects
from holdfast.engines.redis.connections import in_flight
from holdfast.engines.redis.connections.handshake import open_socket
from holdfast.engines.redis.connections.settings import Server
from holdfast.engines.redis.connections.wire import Wire
from holdfast.engines.redis.dialect import pushes
from holdfast.engines.redis.dialect.packing import Argument, pack
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import (
    HELLO,
    Call,
    Publish,
    acknowledged,
    around,
    call_by_digest,
    call_by_source,
    checked,
    explained,
    is_demotion,
    is_master,
    is_unknown_script,
    out_of_time,
)
from holdfast.engines.redis.scripts import Script
from holdfast.engines.redis.waiting import tracking
from holdfast.engines.redis.waiting.watch import BaseWatch, Way
from holdfast.errors import EngineRefused

#: Idle connections kept: a burst of threads must not leave its sockets behind.
_IDLE_CAP: Final = 16
#: A connection that has rested longer is looked at before it is used: the server may have hung up meanwhile.
_REST: Final = 1.0
#: Waits are cut into slices: a sleep does not notice a suspend, the clock of belief does.
_SLICE: Final = 1.0


class GuardedFlight(NamedTuple):
    """Calls on their way: sent by the connection that guards or, ``guarded`` being false, by one of the pool; or failed
    already, because there is no connection. ``until``: when their time is over."""

    calls: Sequence[Call]
    replicas: int
    sent: in_flight.Flight | None
    guarded: bool
    failure: RequestFailed | EngineRefused | None
    until: float


class Lender(Protocol):
    """A channel of the same engine that may run calls for a watchdog which cannot connect."""

    def lend(self, address: str, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer] | None:
        """Run ``calls`` at the server at ``address`` on a connection that is there already; None: there is none. Called
        from the watchdog's thread."""


class BlockingChannel:
    """Thread-safe: each request in flight has a connection of its own, the one used last is used first."""

    def __init__(self, settings: Server, lenders: Collection[Lender] = ()) -> None:
        self._settings = settings
        self._lenders = lenders
        self._idle: list[Wire] = []  # append and pop are atomic: no lock on the hot path
        self._wires: weakref.WeakSet[Wire] = weakref.WeakSet()
        self.closed = False
        self.guard = tracking.Guard(self)
        self.way: Way | None = None
        self.publish: Publish = "PUBLISH"
        self.at_rest = True  #: always: whoever uses a connection closes it himself, once the channel is closed

    # -- the port --------------------------------------------------------------------------------------------------

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Argument], timeout: float) -> Any:
        began = time.monotonic()
        reply = self._call(call_by_digest(script, keys, args), timeout, began)
        if reply.__class__ is ReplyError:
            if is_unknown_script(reply):
                now = time.monotonic()
                reply = self._call(call_by_source(script, keys, args), max(began + timeout - now, 0.001), now)
            return self.checked(reply)
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
        return self.checked(self._call(pack(tuple(args)), timeout, time.monotonic()))

    async def servers(self, timeout: float) -> Sequence[Self]:
        return (self,)

    def watch(self) -> BlockingWatch:
        return BlockingWatch(self)

    async def run_guarded(self, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer]:
        answers: list[Answer] = []
        for at, call in enumerate(calls):
            deadline = time.monotonic() + timeout
            answer = await self.end_guarded(self.begin_guarded([call], replicas, timeout), deadline)
            answers += answer
            if isinstance(answer[0], RequestFailed):
                # What this call met, the next would meet too, after another time-out.
                return answers + [answer[0]] * (len(calls) - at - 1)
        return answers

    async def run_together(self, calls: Sequence[Call], timeout: float) -> Sequence[Answer]:
        deadline = time.monotonic() + timeout
        answers: list[Answer] = []
        for start in range(0, len(calls), in_flight.AT_ONCE):
            left = deadline - time.monotonic()
            if left <= 0:
                return answers + [out_of_time()] * (len(calls) - start)
            batch = calls[start : start + in_flight.AT_ONCE]
            answer = await self.end_guarded(self.begin_guarded(batch, 0, left), deadline)
            answers += answer
            if all(isinstance(each, RequestFailed) for each in answer):
                return answers + [answer[-1]] * (len(calls) - len(answers))
        return answers

    def to_be_connected(self) -> Callable[[float], None] | None:
        """What to call, with a time-out, to have a connection ready for ``begin_guarded``; None: there is one."""
        if self.guard.listening:
            return self.guard.warm if self.guard.fileno() is None else None
        return None if self._idle else self.warm

    def begin_guarded(self, calls: Sequence[Call], replicas: int, timeout: float) -> GuardedFlight:
        """The first half of ``run_guarded``, all calls in one buffer. Be sure to call ``end_guarded``."""
        until = time.monotonic() + timeout
        # Only the watchdog needs the guard. Nor is it for two threads at once: the second is no watchdog.
        guarded = self.guard.listening and self.guard.enter()
        sent, failure = None, None
        try:
            if guarded:
                sent = self.guard.begin(calls, replicas, timeout)
            else:
                sent = self._launch(self.take(timeout), calls, replicas, until)
        except (RequestFailed, EngineRefused) as error:
            failure = error
            if guarded:
                self.guard.leave()
        except BaseException:
            if guarded:
                self.guard.give_up()
            raise
        return GuardedFlight(calls, replicas, sent, guarded, failure, until)

    async def end_guarded(self, under_way: GuardedFlight, deadline: float) -> Sequence[Answer]:
        """The second half: one answer for each call."""
        calls, replicas, sent, guarded, failure, until = under_way
        if sent is None:
            answers = self._borrow(calls, replicas, until) if self.guard.listening else None
            return answers or [failure] * len(calls)
        if not guarded:
            return self._land(sent, deadline)
        try:
            return self.guard.end(sent, deadline)
        except (RequestFailed, EngineRefused) as error:
            return [error] * len(calls)
        finally:
            self.guard.leave()

    def give_up_guarded(self, under_way: GuardedFlight) -> None:
        """In place of ``end_guarded``: nobody wants the answers any more."""
        if under_way.sent is None:
            return
        if under_way.guarded:
            self.guard.give_up()
        else:
            self.discard(under_way.sent.wire)

    def _launch(self, wire: Wire, calls: Sequence[Call], replicas: int, until: float) -> in_flight.Flight:
        """Send ``calls`` on a connection of the pool."""
        try:
            return in_flight.send(wire, calls, replicas, max(until - time.monotonic(), 0.001), tracked=False)
        except BaseException:
            self.discard(wire)
            raise

    def _land(self, sent: in_flight.Flight, deadline: float) -> Sequence[Answer]:
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

    # -- when the watchdog cannot connect --------------------------------------------------------------------------

    def _borrow(self, calls: Sequence[Call], replicas: int, until: float) -> Sequence[Answer] | None:
        """Have another channel run ``calls``. The server may let nobody in any more (maxclients, another password)
        while those who are in are served."""
        try:
            lenders = list(self._lenders)
        except RuntimeError:
            return None  # another thread opens a session in this moment: the next attempt will find it
        for lender in lenders:
            left = until - time.monotonic()
            if left > 0 and lender is not self:
                answers = lender.lend(self._settings.address, calls, replicas, left)
                if answers is not None:
                    return answers
        return None

    def lend(self, address: str, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer] | None:
        until = time.monotonic() + timeout
        wire = self.take_idle() if address == self._settings.address else None
        if wire is None:
            return None
        try:
            # A demoted server would say that locks are gone which the new master has. That may be why the watchdog was
            # refused there.
            if not is_master(self._greeted(wire, until)):
                self.discard(wire)
                return None
            return self._land(self._launch(wire, calls, replicas, until), until)
        except RequestFailed as failure:
            return [failure] * len(calls)

    def _greeted(self, wire: Wire, until: float) -> Any:
        try:
            return wire.call(HELLO, max(until - time.monotonic(), 0.001))
        except BaseException:
            self.discard(wire)
            raise

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        return await tracking.wait_for_hints((self.guard,), until, wakeup)

    async def pause(self, seconds: float) -> None:
        await BLOCKING.sleep_until(clock.now() + seconds)

    async def close(self) -> None:
        self.closed = True
        self._drop_idle()
        self.guard.close()

    def after_fork_in_child(self) -> None:
        """Close what was inherited, without a word on it: the parent goes on using the same connections."""
        self.closed = True
        self._idle.clear()
        for wire in list(self._wires):
            wire.close()

    # -- the pool --------------------------------------------------------------------------------------------------

    def _call(self, packed: bytes, timeout: float, now: float) -> Any:
        deadline = now + timeout
        try:
            wire = self._idle.pop()
        except IndexError:
            wire = None
        if wire is None or now - wire.rested > _REST or wire.address != self._settings.address:
            wire = self.take(timeout, wire)
            timeout = max(deadline - time.monotonic(), 0.001)  # connecting has taken its part
        try:
            wire.send(packed, timeout)
            reply = wire.reply(deadline)
        except BaseException:  # Ctrl-C too: the reply may still come, and must not be taken for the next one's
            self.discard(wire)
            raise
        wire.rested = now
        if self.closed or len(self._idle) >= _IDLE_CAP:
            wire.close()
        else:
            self._idle.append(wire)
        return reply

    def _exchange(self, requests: Sequence[bytes], timeout: float) -> list[Any]:
        """Send ``requests`` in one buffer, with nothing between them; all their replies."""
        deadline = time.monotonic() + timeout
        wire = self.start(b"".join(requests), timeout, len(requests))
        try:
            answers = [wire.late_reply(deadline) for _ in requests]
        except BaseException:
            self.discard(wire)
            raise
        self.give_back(wire)
        return answers

    def start(self, packed: bytes, timeout: float, replies: int = 1) -> Wire:
        """Send on a connection of the pool; ``finish`` it, or ``discard`` it."""
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

    def finish(self, wire: Wire, call: Call, deadline: float) -> Answer:
        """The answer to the one ``call`` that was started on ``wire``."""
        try:
            reply = wire.late_reply(deadline)
            if reply.__class__ is ReplyError and is_unknown_script(reply):
                reply = wire.call(call.by_source(), max(deadline - time.monotonic(), 0.001))
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
        """A server that is no master any more: the next request shall find out where the master is now."""
        if is_demotion(reply):
            self._drop_idle()

    def take_idle(self) -> Wire | None:
        """A connection of the pool on which a request can be sent at once; None: there is none. Never waits."""
        while self._idle:
            try:
                wire = self._idle.pop()
            except IndexError:
                return None  # another thread was faster
            fresh = time.monotonic() - wire.rested <= _REST
            if self.leads_there(wire) and (fresh or not wire.is_dead()):
                return wire
            wire.close()
        return None

    def warm(self, timeout: float) -> None:
        """Have a connection ready."""
        self.give_back(self.connect(timeout))

    def take(self, timeout: float, wire: Wire | None = None) -> Wire:
        """A connection for the caller alone: ``wire`` or an idle one if it is alive, else a new one."""
        while True:
            if wire is None:
                try:
                    wire = self._idle.pop()
                except IndexError:
                    return self.connect(timeout)
            if self.leads_there(wire) and not wire.is_dead():
                return wire
            wire.close()
            wire = None

    def leads_there(self, wire: Wire) -> bool:
        """Whether ``wire`` leads to the server that is the right one now. After a failover another may be, and to talk
        to both would be to acquire from the one and to renew at the other."""
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
            wire.abort()  # a signal struck who was about to drop it: its next user would be given another's reply
        elif len(self._idle) >= _IDLE_CAP:
            wire.close()
        else:
            self._idle.append(wire)
            if self.closed:  # perhaps in this very moment: who closed it has not seen this one
                self._drop_idle()

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
        self._subscribed = False

    def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is None:
            return
        wire.mute()
        if wire.subscribed or wire.is_dead():
            wire.close()  # to unsubscribe would be to wait for an answer; hung up on, it would fail its next user
        else:
            self._channel.give_back(wire)

    async def _line(self, timeout: float) -> Wire:
        wire = self._wire
        if wire is not None and (wire.owed or not self._channel.leads_there(wire)):
            # To another server than the one that is asked to acquire: there the lock may be free for ever.
            self._drop(wire)
            wire = None
        if wire is None:
            wire = self._wire = self._channel.take(timeout)
            self._subscribed, wire.on_push = False, self._on_push
        return wire

    def _expect(self, line: Wire, word: bytes) -> None:
        self._word, self._heard = word, False

    def _subscribe(self, line: Wire, channel: bytes) -> bool:
        self._word, self._heard = channel, False
        new, self._subscribed = not self._subscribed, True
        line.subscribed = True
        return new

    def _on_push(self, push: PushNotification) -> None:
        words = pushes.words(push)
        if words is None or self._word in words:
            self._heard = True
            if push[0] == pushes.UNSUBSCRIBED:
                self._subscribed = False  # by the server: the slot has moved, and may come back

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
