"""The asyncio channel: one multiplexed connection for all tasks of one event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import weakref
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Self

from hiredis import ReplyError

from holdfast._runtime import clock
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections.aio_pipe import Pipe
from holdfast.engines.redis.connections.aio_timeouts import Patience
from holdfast.engines.redis.connections.handshake import open_transport
from holdfast.engines.redis.connections.settings import Server
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
    is_demotion,
    is_master,
    is_unknown_script,
    unacknowledged,
)
from holdfast.engines.redis.scripts import Script
from holdfast.engines.redis.waiting.watch import SUBSCRIPTIONS, BaseWatch, Way
from holdfast.errors import EngineRefused

#: The loop's clock stands still while the machine is suspended: look at the clock of belief this often.
_SLICE: Final = 1.0
#: Resting connections kept for those who wait for replicas.
_APART_CAP: Final = 16
#: With less time than this, nothing is asked: no answer could come.
_LEAST: Final = 0.005
#: An attempt to connect that has used this part of its time, or more, has failed for want of time.
_IN_TIME: Final = 0.9
_OPPOSITE: Final = {"SUBSCRIBE": "UNSUBSCRIBE", "SSUBSCRIBE": "SUNSUBSCRIBE"}


class AsyncioChannel:
    """Belongs to the event loop of its first request."""

    def __init__(self, settings: Server) -> None:
        self._settings = settings
        self._pipe: Pipe | None = None
        self._attempt: _Attempt | None = None  # to connect: the last one
        self._apart: list[Pipe] = []  # connections for those who wait for replicas, at rest
        self._all_apart: weakref.WeakSet[Pipe] = weakref.WeakSet()
        self._closed = False
        self._listeners: dict[bytes, set[AsyncioWatch]] = {}  # key or channel -> who waits for a word of it
        self.way: Way | None = None
        self.publish: Publish = "PUBLISH"

    # -- the port --------------------------------------------------------------------------------------------------

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Argument], timeout: float) -> Any:
        pipe = self._pipe
        if pipe is None or pipe.lost or pipe.address != self._settings.address:
            pipe, timeout = await self._reach(timeout)
        reply = await pipe.send(call_by_digest(script, keys, args), timeout)
        if reply.__class__ is ReplyError:
            if is_unknown_script(reply):
                reply = await self._run_unknown(pipe, script, keys, args, timeout)
            return self.checked(reply)
        return reply

    async def _run_unknown(
        self, pipe: Pipe, script: Script, keys: Sequence[str], args: Sequence[Argument], timeout: float
    ) -> Any:
        """Have the server learn a script. It is sent once: what follows on the same connection finds it known. (Ten
        thousand callers at once would send it ten thousand times, and wait for all of that to be read.)"""
        if script.sha in pipe.teaching:
            reply = await pipe.send(call_by_digest(script, keys, args), timeout)
            if not is_unknown_script(reply):
                return reply
        pipe.teaching.add(script.sha)
        try:
            return await pipe.send(call_by_source(script, keys, args), timeout)
        finally:
            pipe.teaching.discard(script.sha)

    def post(self, packed: bytes, timeout: float) -> asyncio.Future[Any] | None:
        """Send at once; None if there is no connection yet."""
        pipe = self._pipe
        return None if pipe is None or pipe.lost else pipe.send(packed, timeout)

    def checked(self, reply: Any) -> Any:
        """``reply``, or the exception that it means."""
        self.look_for_demotion(reply)
        return checked(reply)

    def look_for_demotion(self, reply: Any) -> None:
        """A server that is no master any more: the next request shall find out where the master is now."""
        if is_demotion(reply):
            for pipe in (self._pipe, *self._apart):
                if pipe is not None:
                    pipe.abort("the server is no master any more")

    async def run_acknowledged(
        self, call: Call, replicas: int, timeout: float, *, asking: bool = False
    ) -> tuple[Any, int]:
        # WAIT blocks its connection, and on the shared one everybody behind it: so a connection for this alone.
        pipe, timeout = await (self._take_apart(timeout) if replicas else self._reach(timeout))
        replies = await self._converse(pipe, call.packed, replicas, timeout, asking=asking)
        if is_unknown_script(replies[asking]):
            replies = await self._converse(pipe, call.by_source(), replicas, timeout, asking=asking)
        if replicas:
            # Closed while this one was being opened: nobody else would close it.
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
        patience = Patience(timeout)
        try:
            pipe = Pipe(*await open_transport(self._settings, timeout), _ignore)
        finally:
            patience.stop()
        self._all_apart.add(pipe)
        return pipe, self._enough(timeout - patience.spent())

    async def command(self, args: Sequence[Argument], timeout: float) -> Any:
        pipe, timeout = await self._reach(timeout)
        return self.checked(await pipe.send(pack(tuple(args)), timeout))

    @property
    def at_rest(self) -> bool:
        """Whether nobody waits for an answer, for a push or for a connection."""
        pipes = (self._pipe, *self._all_apart)
        connecting = self._attempt is not None and not self._attempt.task.done()
        return not (self._listeners or connecting or any(pipe.busy for pipe in pipes if pipe is not None))

    async def servers(self, timeout: float) -> Sequence[Self]:
        return (self,)

    def watch(self) -> AsyncioWatch:
        return AsyncioWatch(self)

    async def run_guarded(self, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer]:
        # The watchdog, which needs a guard, is always a thread; here few leases are renewed, most often one.
        # One at a time where replicas are waited for, else all behind the first, which teaches the server the script.
        alone = len(calls) if replicas else 1
        answers = [await self._run_guarded(call, replicas, timeout) for call in calls[:alone]]
        if len(calls) > alone:
            answers += await asyncio.gather(*(self._run_guarded(call, 0, timeout) for call in calls[alone:]))
        return answers

    async def run_together(self, calls: Sequence[Call], timeout: float) -> Sequence[Answer]:
        return await asyncio.gather(*(self._run_guarded(call, 0, timeout) for call in calls))

    async def _lend(self, pipe: Pipe, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer] | None:
        # Demoted, it would say that locks are gone which the new master has: that may be why it lets no watchdog in.
        try:
            greeting = await pipe.send(HELLO, timeout)
        except RequestFailed:
            return None
        return await self.run_guarded(calls, replicas, timeout) if is_master(greeting) else None

    def lend(self, address: str, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer] | None:
        """See :class:`~holdfast.engines.redis.connections.blocking.Lender`. None if the loop is blocked."""
        pipe = self._pipe
        if address != self._settings.address or pipe is None or pipe.lost or not pipe.loop.is_running():
            return None
        running = self._lend(pipe, calls, replicas, timeout)
        try:
            lent = asyncio.run_coroutine_threadsafe(running, pipe.loop)
        except RuntimeError:  # closed in this moment
            running.close()
            return None
        try:
            return lent.result(timeout)
        except (TimeoutError, concurrent.futures.CancelledError):
            lent.cancel()
            if inspect.getcoroutinestate(running) == inspect.CORO_CREATED and not pipe.loop.is_running():
                running.close()  # the loop was stopped before it came to this: asyncio would complain
            return None

    async def _run_guarded(self, call: Call, replicas: int, timeout: float) -> Answer:
        try:
            reply, count = await self.run_acknowledged(call, replicas, timeout)
        except (RequestFailed, EngineRefused) as failure:
            return failure
        return reply if count >= replicas else unacknowledged(count, replicas)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        self._closed = True
        loop = asyncio.get_running_loop()
        attempt, self._attempt = self._attempt, None
        if attempt is not None and attempt.task.get_loop() is loop:
            attempt.task.cancel()
            await asyncio.wait((attempt.task,))
        pipe, self._pipe = self._pipe, None
        for each in (pipe, *self._all_apart):
            if each is not None:
                await each.close() if each.loop is loop else each.forget()

    def after_fork_in_child(self) -> None:
        """Close what was inherited, without a word on it."""
        self._closed = True
        for pipe in (self._pipe, *self._all_apart):
            if pipe is not None:
                pipe.forget()

    # -- connecting ------------------------------------------------------------------------------------------------

    async def open(self, timeout: float) -> Pipe:
        """The connection."""
        return (await self._reach(timeout))[0]

    async def _reach(self, timeout: float) -> tuple[Pipe, float]:
        """The connection, and what it has left of the time: connecting and asking have one bound together."""
        if self._pipe is not None and self._pipe.address != self._settings.address:
            # After a failover another server is the right one: nobody shall talk to both.
            self._pipe.abort("another server is the master now")
        while self._pipe is None or self._pipe.lost:
            if self._closed:
                raise self._is_closed()
            attempt = self._attempt
            if attempt is None or attempt.task.done():
                # All that need it while it is being made wait for the same attempt. It has the time of the one that
                # waits longest: else hundreds that came one after the other would make hundreds of attempts, each with
                # the instant that it has more than the one before.
                longest = timeout if attempt is None else max(timeout, attempt.longest_left)
                attempt = self._attempt = _Attempt(self._connect(longest), longest)
            timeout -= await attempt.ended(timeout)
            self._judge(attempt, timeout)
        return self._pipe, self._enough(timeout)

    def _judge(self, attempt: _Attempt, left: float) -> None:
        """Raise what the end of an attempt means to one that waited for it and has ``left`` of its time."""
        if not attempt.task.done():
            trying = getattr(self._settings, "trying", None)
            where = f"{self._settings.address}: not connected{f' to {trying}' if trying else ''} in time"
            raise RequestFailed(where, may_have_happened=False)
        error = None if attempt.task.cancelled() else attempt.task.exception()
        if isinstance(error, RequestFailed):
            # An attempt that had less time than we have is not our failure. Any other failure is: were each to try
            # for itself after a server has refused the connection, thousands would do so one after the other.
            if left < _LEAST or not attempt.ran_out:
                raise RequestFailed(str(error), may_have_happened=False) from error
        elif isinstance(error, Exception):
            raise type(error)(str(error)) from error  # a new one for each: tracebacks grow on shared ones
        # Else there is a connection; or the attempt was cancelled, or interrupted by a signal that has left the loop by
        # it already, and must not do so twice.

    async def _connect(self, timeout: float) -> None:
        self._pipe = Pipe(*await open_transport(self._settings, timeout), self._on_push)

    def _enough(self, left: float) -> float:
        """``left``, if that is time enough to ask something."""
        if left < _LEAST:
            raise RequestFailed(f"{self._settings.address}: connected too late to ask", may_have_happened=False)
        return left

    def _is_closed(self) -> RequestFailed:
        return RequestFailed(f"{self._settings.address}: this session is closed", may_have_happened=False)

    # -- pushes ----------------------------------------------------------------------------------------------------

    def listen(self, word: bytes, watch: AsyncioWatch) -> None:
        """Tell ``watch`` of ``word``."""
        self._listeners.setdefault(word, set()).add(watch)

    def unlisten(self, word: bytes, watch: AsyncioWatch) -> bool:
        """The opposite; whether it was the last."""
        listeners = self._listeners[word]
        listeners.discard(watch)
        if listeners:
            return False
        del self._listeners[word]
        return True

    def _on_push(self, push: Sequence[Any]) -> None:
        words = pushes.words(push)
        for word in list(self._listeners) if words is None else words:
            for watch in self._listeners.get(word, ()):
                watch.wake(unsubscribed=push[0] == pushes.UNSUBSCRIBED)


def _ignore(push: Sequence[Any]) -> None:
    """On a connection that nobody listens on."""


class _Attempt:
    """One attempt to connect, and the callers that wait for it.

    A task of its own: the caller that happened to come first may be cancelled. (So may this one, by who cancels all
    tasks of a loop; before its first step, it would not even tell.) One clock for all callers, which does not count the
    time that thousands of them keep the loop busy.
    """

    def __init__(self, connect: Coroutine[Any, Any, None], seconds: float) -> None:
        self.longest_left = 0.0  #: when it ended: of the time of those that waited
        self.ran_out = False  #: it has ended for want of time, as far as is known
        self._waiting: list[tuple[asyncio.Future[None], float]] = []  # with the time at which each gives up
        self.task = asyncio.get_running_loop().create_task(connect)
        self._patience = Patience(seconds, self._tick)
        self.task.add_done_callback(self._settle)

    async def ended(self, timeout: float) -> float:
        """Wait until it has ended, or for ``timeout``; how much of that was spent."""
        began = self._patience.spent()
        future = self.task.get_loop().create_future()
        self._waiting.append((future, began + timeout))
        await future
        return self._patience.spent() - began

    def _tick(self) -> None:
        if self.task.done():
            self._settle(self.task)  # a signal has interrupted it before
            return
        now = self._patience.spent()
        for future, until in self._waiting:
            if until <= now and not future.done():
                future.set_result(None)
        self._waiting = [each for each in self._waiting if not each[0].done()]

    def _settle(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # looked at: if every caller was cancelled meanwhile, asyncio would complain
        now = self._patience.spent()
        self.ran_out = now >= _IN_TIME * self._patience.seconds
        while self._waiting:
            future, until = self._waiting[-1]
            if not future.done():
                self.longest_left = max(self.longest_left, until - now)
                future.set_result(None)
            self._waiting.pop()
        self._patience.stop()


class AsyncioWatch(BaseWatch[Pipe]):
    """Listens on the shared connection."""

    def __init__(self, channel: AsyncioChannel) -> None:
        super().__init__(channel)
        self._channel = channel
        self._word: bytes | None = None
        self._subscribed: Pipe | None = None
        self._heard = False
        self._sleeper: asyncio.Future[None] | None = None

    def wake(self, *, unsubscribed: bool) -> None:
        self._heard = True
        if unsubscribed:
            self._subscribed = None  # by the server: the slot has moved, and may come back
        sleeper = self._sleeper
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(None)

    def close(self) -> None:
        word, self._word = self._word, None
        pipe, self._subscribed = self._subscribed, None
        if word is not None and self._channel.unlisten(word, self) and pipe is not None and not pipe.lost:
            for subscribe in SUBSCRIPTIONS[self._host.publish]:
                pipe.unsubscribe(pack((_OPPOSITE[subscribe], word)), self._timeout)

    async def _line(self, timeout: float) -> Pipe:
        return await self._channel.open(timeout)

    def _expect(self, line: Pipe, word: bytes) -> None:
        self._heard = False
        if self._word != word:
            self.close()
            self._word = word
            self._channel.listen(word, self)

    def _subscribe(self, line: Pipe, channel: bytes) -> bool:
        self._heard = False
        if self._word == channel and self._subscribed is line:
            return False
        self.close()
        self._word, self._subscribed = channel, line
        # Others may have subscribed already, on this connection or on one that is lost: once more does no harm.
        self._channel.listen(channel, self)
        return True

    def _is_lost(self, line: Pipe) -> bool:
        return line.lost

    async def _ask(self, line: Pipe, commands: Sequence[Sequence[Argument]], timeout: float) -> list[Any]:
        return await line.ask(commands, timeout)

    async def _hear(self, until: float) -> bool:
        loop = asyncio.get_running_loop()
        while not self._heard:
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
