"""The asyncio channel: one multiplexed connection for all tasks of one event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import weakref
from collections.abc import Awaitable, Sequence
from typing import Any, Final, Self

from hiredis import ReplyError

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections.aio_connecting import Connecting
from holdfast.engines.redis.connections.aio_pipe import Pipe
from holdfast.engines.redis.connections.aio_timeouts import LoopTimer
from holdfast.engines.redis.connections.channel import answer_of
from holdfast.engines.redis.connections.handshake import open_transport
from holdfast.engines.redis.connections.settings import Server
from holdfast.engines.redis.dialect import pushes
from holdfast.engines.redis.dialect.packing import HELLO, Argument, pack
from holdfast.engines.redis.dialect.replication import acknowledged, around
from holdfast.engines.redis.dialect.replies import Answer, checked, is_demotion, is_master, is_unknown_script
from holdfast.engines.redis.dialect.requests import Call, Opening, Packed, Publish
from holdfast.engines.redis.waiting.aio_watch import AsyncioWatch
from holdfast.engines.redis.waiting.watch import Way

#: Idle connections kept for callers that wait for replicas.
_APART_CAP: Final = 16
#: With less time than this (s), no request is sent: no answer could arrive.
_LEAST: Final = 0.005


class AsyncioChannel:
    """See :class:`~holdfast.engines.redis.connections.channel.Channel`. Belongs to the event loop of its first
    request."""

    def __init__(self, settings: Server) -> None:
        self._settings = settings
        self._pipe: Pipe | None = None
        self._connecting: Connecting | None = None  # the last attempt
        self._apart: list[Pipe] = []  # idle connections for callers that wait for replicas
        self._all_apart: weakref.WeakSet[Pipe] = weakref.WeakSet()
        self._closed = False
        self._listeners: dict[bytes, set[AsyncioWatch]] = {}  # key or channel -> watches that wait for a push about it
        #: Waiters that a release may hand a lock over to, by id and owner.
        self.seats: weakref.WeakValueDictionary[bytes, AsyncioWatch] = weakref.WeakValueDictionary()
        self.way: Way | None = None
        self.wakes = True
        self.clustered = False
        self.publish: Publish = "PUBLISH"

    # -- the port --------------------------------------------------------------------------------------------------

    async def run(self, call: Call, timeout: float) -> Any:
        pipe = self._pipe
        if pipe is None or pipe.lost or pipe.address != self._settings.address:
            pipe, timeout = await self._reach(timeout)
        reply = await self._send(pipe, call, timeout)
        return self.checked(reply) if reply.__class__ is ReplyError else reply

    def start(self, keys: Opening, packed: bytes, timeout: float) -> Awaitable[Any] | None:
        pipe = self._pipe
        if pipe is None or pipe.lost or pipe.address != self._settings.address:
            return None
        if keys.script in pipe.known:
            return pipe.send(packed, timeout)
        return self._send(pipe, Packed(keys, packed), timeout)

    async def _send(self, pipe: Pipe, call: Call, timeout: float) -> Any:
        reply = await pipe.send(call.packed, timeout)
        if reply.__class__ is not ReplyError:
            pipe.known.add(call.script)
        elif is_unknown_script(reply):
            reply = await self._run_unknown(pipe, call, timeout)
        return reply

    async def _run_unknown(self, pipe: Pipe, call: Call, timeout: float) -> Any:
        """Loads a script. The source is sent once: later calls on the same connection use its digest. (Otherwise ten
        thousand callers would send it ten thousand times, and wait until all of that is read.)"""
        sha = call.script.sha
        if sha in pipe.teaching:
            reply = await pipe.send(call.packed, timeout)
            if not is_unknown_script(reply):
                return reply
        pipe.teaching.add(sha)
        try:
            return await pipe.send(call.by_source(), timeout)
        finally:
            pipe.teaching.discard(sha)

    def post(self, packed: bytes, timeout: float) -> asyncio.Future[Any] | None:
        """Send without waiting; None if there is no connection yet."""
        pipe = self._pipe
        return None if pipe is None or pipe.lost else pipe.send(packed, timeout)

    def checked(self, reply: Any) -> Any:
        """``reply``, or the exception that it means."""
        self.look_for_demotion(reply)
        return checked(reply)

    def look_for_demotion(self, reply: Any) -> None:
        """If the server is no master any more, the next request finds out which server is the master now."""
        if is_demotion(reply):
            for pipe in (self._pipe, *self._apart):
                if pipe is not None:
                    pipe.abort("the server is no master any more")

    async def run_acknowledged(
        self, call: Call, replicas: int, timeout: float, *, asking: bool = False
    ) -> tuple[Any, int]:
        # WAIT blocks its connection, and on the shared one all requests behind it: so it has a connection of its own.
        pipe, timeout = await (self._take_apart(timeout) if replicas else self._reach(timeout))
        replies = await self._converse(pipe, call.packed, replicas, timeout, asking=asking)
        if is_unknown_script(replies[asking]):
            replies = await self._converse(pipe, call.by_source(), replicas, timeout, asking=asking)
        if replicas:
            # The channel may have been closed while this connection was being opened: then it must be closed here.
            if self._closed or any(map(is_demotion, replies)) or len(self._apart) >= _APART_CAP:
                pipe.abort("not needed any more")
            else:
                self._apart.append(pipe)
        for each in replies:
            self.look_for_demotion(each)
        return acknowledged(replies, replicas)

    async def _converse(self, pipe: Pipe, packed: bytes, replicas: int, timeout: float, *, asking: bool) -> list[Any]:
        requests = around(packed, replicas, timeout, asking=asking)
        try:
            answer = await pipe.send(b"".join(requests), timeout, len(requests))
        except BaseException:
            if replicas:
                pipe.abort("given up")
            raise
        return answer if len(requests) > 1 else [answer]

    async def _take_apart(self, timeout: float) -> tuple[Pipe, float]:
        while self._apart:
            pipe = self._apart.pop()
            if not pipe.lost and pipe.address == self._settings.address:
                return pipe, timeout
            pipe.abort("not needed any more")
        if self._closed:
            raise self._is_closed()
        timer = LoopTimer(timeout)
        try:
            pipe = Pipe(*await open_transport(self._settings, timeout), _ignore)
        finally:
            timer.stop()
        self._all_apart.add(pipe)
        try:
            return pipe, self._enough(timeout - timer.spent())
        except RequestFailed:
            pipe.abort("connected too late")  # no caller knows it: it would stay open as long as the channel
            raise

    async def command(self, args: Sequence[Argument], timeout: float) -> Any:
        pipe, timeout = await self._reach(timeout)
        return self.checked(await pipe.send(pack(tuple(args)), timeout))

    @property
    def at_rest(self) -> bool:
        """Whether no caller waits for an answer, for a push or for a connection."""
        pipes = (self._pipe, *self._all_apart)
        connecting = self._connecting is not None and not self._connecting.task.done()
        return not (self._listeners or self.seats or connecting or any(pipe.busy for pipe in pipes if pipe is not None))

    async def servers(self, timeout: float) -> Sequence[Self]:
        return (self,)

    def watch(self) -> AsyncioWatch:
        return AsyncioWatch(self)

    def lend(self, address: str, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer] | None:
        """See :class:`~holdfast.engines.redis.connections.blocking_keeper.Lender`. None if the loop is blocked."""
        pipe = self._pipe
        if address != self._settings.address or pipe is None or pipe.lost or not pipe.loop.is_running():
            return None
        running = self._lend(pipe, calls, replicas, timeout)
        try:
            lent = asyncio.run_coroutine_threadsafe(running, pipe.loop)
        except RuntimeError:  # the loop was closed at this moment
            running.close()
            return None
        try:
            return lent.result(timeout)
        except (TimeoutError, concurrent.futures.CancelledError):
            lent.cancel()
            if inspect.getcoroutinestate(running) == inspect.CORO_CREATED and not pipe.loop.is_running():
                running.close()  # the loop was stopped before it started this: asyncio would complain
            return None

    async def _lend(self, pipe: Pipe, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer] | None:
        # A demoted server would report locks as gone which the new master has. The demotion may be the reason why it
        # refused the watchdog's connection.
        try:
            greeting = await pipe.send(HELLO, timeout)
        except RequestFailed:
            return None
        if not is_master(greeting):
            return None
        # One at a time where replicas are waited for, else all behind the first, which teaches the server the script.
        alone = len(calls) if replicas else 1
        answers = [await answer_of(self, call, replicas, timeout) for call in calls[:alone]]
        if len(calls) > alone:
            answers += await asyncio.gather(*(answer_of(self, call, 0, timeout) for call in calls[alone:]))
        return answers

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close all connections and wait until they are closed: a loop that ends with an open transport complains."""
        self._closed = True
        loop = asyncio.get_running_loop()
        ending = list[asyncio.Future[None]]()
        # All are ended before the first await: this may be cancelled there, and nothing else would close the rest.
        if self._connecting is not None and self._connecting.task.get_loop() is loop:
            self._connecting.task.cancel()
            ending.append(self._connecting.task)
        for pipe in (self._pipe, *self._all_apart):
            if pipe is not None and pipe.loop is loop:
                ending.append(pipe.close())
            elif pipe is not None:
                pipe.forget()
        self._connecting = self._pipe = None
        if ending:
            await asyncio.wait(ending)

    def after_fork_in_child(self) -> None:
        """Close what was inherited without writing to it."""
        self._closed = True
        for pipe in (self._pipe, *self._all_apart):
            if pipe is not None:
                pipe.forget()

    # -- connecting ------------------------------------------------------------------------------------------------

    async def open(self, timeout: float) -> Pipe:
        """The connection."""
        return (await self._reach(timeout))[0]

    def leads_there(self, pipe: Pipe) -> bool:
        """Whether ``pipe`` leads to the server that is the right one now."""
        return pipe.address == self._settings.address

    async def _reach(self, timeout: float) -> tuple[Pipe, float]:
        """The connection, and what it has left of the time: connecting and asking have one bound together."""
        if self._pipe is not None and self._pipe.address != self._settings.address:
            # After a failover another server is the right one: no caller may use both.
            self._pipe.abort("another server is the master now")
        while self._pipe is None or self._pipe.lost:
            if self._closed:
                raise self._is_closed()
            connecting = self._connecting
            if connecting is None or connecting.task.done():
                # All callers that need the connection wait for the same attempt. It has the timeout of the caller
                # that waits longest: otherwise hundreds of callers that came one after the other would make hundreds
                # of attempts, each with the tiny difference to the previous caller's timeout.
                longest = timeout if connecting is None else max(timeout, connecting.longest_left)
                connecting = self._connecting = Connecting(self._connect(longest), longest)
            timeout -= await connecting.ended(timeout)
            self._judge(connecting, timeout)
        return self._pipe, self._enough(timeout)

    def _judge(self, connecting: Connecting, left: float) -> None:
        """Raise what the end of an attempt means to a caller that waited for it and has ``left`` of its time."""
        if not connecting.task.done():
            trying = getattr(self._settings, "trying", None)
            where = f"{self._settings.address}: not connected{f' to {trying}' if trying else ''} in time"
            raise RequestFailed(where, may_have_happened=False)
        error = None if connecting.task.cancelled() else connecting.task.exception()
        if isinstance(error, RequestFailed):
            # An attempt that had less time than this caller has is not this caller's failure. Any other failure is: if
            # each caller tried again after a refused connection, thousands would do so one after the other.
            if left < _LEAST or not connecting.ran_out:
                raise RequestFailed(str(error), may_have_happened=False) from error
        elif isinstance(error, Exception):
            raise type(error)(str(error)) from error  # a new one for each: tracebacks grow on shared ones
        # Else there is a connection; or the attempt was cancelled, or interrupted by a signal. The loop has raised that
        # signal's exception already, and must not raise it twice.

    async def _connect(self, timeout: float) -> None:
        self._pipe = Pipe(*await open_transport(self._settings, timeout), self._on_push)

    def _enough(self, left: float) -> float:
        """``left``, if that is enough time for a request."""
        if left < _LEAST:
            raise RequestFailed(f"{self._settings.address}: connected too late to ask", may_have_happened=False)
        return left

    def _is_closed(self) -> RequestFailed:
        return RequestFailed(f"{self._settings.address}: this session is closed", may_have_happened=False)

    # -- pushes ----------------------------------------------------------------------------------------------------

    def listen(self, subject: bytes, watch: AsyncioWatch) -> None:
        """Wake ``watch`` by pushes about ``subject``."""
        self._listeners.setdefault(subject, set()).add(watch)

    def unlisten(self, subject: bytes, watch: AsyncioWatch) -> bool:
        """Ends ``listen``. Returns whether it was the last watch on ``subject``."""
        listeners = self._listeners.get(subject, set())  # none, if a signal came before it was on the list
        listeners.discard(watch)
        if listeners:
            return False
        self._listeners.pop(subject, None)
        return True

    def _on_push(self, push: Sequence[Any]) -> None:
        handed = pushes.handed(push)
        if handed is not None:
            seat = self.seats.get(handed.waiter)  # none: it has left since
            if seat is not None:
                seat.hand(handed.token)
            return
        subjects = pushes.subjects(push)
        moved = pushes.unsubscribed(push)
        if moved is not None and self._pipe is not None and self._pipe.wakes is not None:
            self._pipe.wakes.subjects.discard(moved)
        if subjects is None or moved is not None:  # perhaps the connection was lost, or the slot has moved
            for seat in list(self.seats.values()):
                seat.leave_seat()
        for subject in list(self._listeners) if subjects is None else subjects:
            for watch in self._listeners.get(subject, ()):
                watch.wake(unsubscribed=push[0] == pushes.UNSUBSCRIBED)


def _ignore(push: Sequence[Any]) -> None:
    """For a connection on which no watch listens."""
