"""One multiplexed connection on an event loop: requests of many tasks, written together and answered in order."""

from __future__ import annotations

import asyncio
import functools
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import hiredis
from hiredis import ReplyError

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections.handshake import reset_on_close
from holdfast.engines.redis.dialect.packing import HELLO, Argument, pack
from holdfast.engines.redis.dialect.pushes import CONFIRMATIONS
from holdfast.engines.redis.dialect.replies import is_unknown_script
from holdfast.engines.redis.scripts import Script

_NOTHING: Final = object()
_PUSH: Final = hiredis.PushNotification
_CHUNK: Final = 16384
#: Requests in flight at most: a server runs them in some ten milliseconds. Of ten thousand, the last ones would time
#: out because of the others, and be sent once more.
_MOST_IN_FLIGHT: Final = 512
_BATCH: Final = 128
#: Between a request's deadline and its failure, the loop reads what has arrived (s).
_SECOND_LOOK: Final = 0.001
_LOST_TIMER: Final = 1.0
#: A connection is not unresponsive before this many times its usual latency, which counts up to this many seconds.
_LATENCIES: Final = 2
_LONGEST_LATENCY: Final = 1.0
#: Replies that are late by this many timeouts serve no caller: then the connection is reset.
_TOO_FAR_BEHIND: Final = 2
#: In place of a number of replies: all that comes before the answer to a HELLO. It is a map, as no other answer here.
_UNTIL_HELLO: Final = 0


def _future_maker(loop: asyncio.AbstractEventLoop) -> Callable[[], asyncio.Future[Any]]:
    """``loop.create_future``; asyncio's own in one step, without a call of Python code for each request."""
    if type(loop).create_future is asyncio.BaseEventLoop.create_future:
        return functools.partial(asyncio.Future, loop=loop)
    return loop.create_future


class _Batch:
    """Requests that are written together. Their time begins then: what the loop does before (ten thousand callers that
    start together take seconds) and the wait for earlier requests are not the server's delay."""

    __slots__ = ("requests", "sent", "shortest")

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.shortest = math.inf  # of their timeouts
        self.sent = math.inf  # on the loop's clock


class Pipe(asyncio.BufferedProtocol):
    """Requests are written once per turn of the loop, as many as a server can run soon; the others wait for replies to
    these. The n-th reply belongs to the n-th request.

    A caller that is cancelled, or whose time is up, leaves its request behind: the reply is read and dropped, and the
    order stays right. That is safe because a request without a reply "may have happened": the claim of a late acquire
    is unresolved, so it is asked for again or withdrawn.

    If the connection ends, or is unresponsive, all waiting callers fail together and it is reset. Unresponsive: no
    reply has come for as long as the longest timeout. A caller with a short timeout must not reset what all share,
    and in a black hole there may always be a caller that has just begun to wait.

    It is also reset if a signal handler raises in the middle of it. That ends the loop, but a user may run it once more
    to clean up. A request that is not in the queue of pending ones, or bytes that were read and not counted, would then
    give all callers the replies to others' requests. asyncio's own code may be interrupted too, between reading and its
    call of ``buffer_updated``. Hence a buffer of our own, for which asyncio has to ask first.
    """

    def __init__(self, writer: asyncio.StreamWriter, address: str, on_push: Callable[[Sequence[Any]], None]) -> None:
        # The writer is kept only because its finaliser would close the transport.
        self._writer: asyncio.StreamWriter | None = writer
        self._transport = cast(asyncio.Transport, writer.transport)
        self.address = address  #: of the server that it leads to
        self._on_push = on_push
        self.loop = asyncio.get_running_loop()
        self._new_future = _future_maker(self.loop)
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._buffer = memoryview(bytearray(_CHUNK))
        self._reading = False
        # TLS, and other loops than asyncio's, also ask for the buffer when there turns out to be nothing to read.
        is_plain = self._transport.get_extra_info("sslcontext") is None
        self._asks_once = is_plain and isinstance(self.loop, asyncio.SelectorEventLoop)
        self._outgoing: deque[_Batch] = deque()
        self._filling: _Batch | None = None  # the last of these, if it takes more requests
        # For each request: where its answer goes, how many replies make it up, how long it may take, and since when.
        self._pending: deque[tuple[asyncio.Future[Any], int, float, _Batch]] = deque()
        self._partial: list[Any] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf  # when the timer looks
        self._noticed: float | None = None  # when it has looked first
        self._behind = False  # more has arrived than was read
        self._last_reply = -math.inf  # when it was read
        self._latency = 0.0  # of that reply
        self._closed: asyncio.Future[None] = self.loop.create_future()
        self.lost = False
        self.tracking = False  #: CLIENT TRACKING is on
        self.wakes: Any = None  #: channels of its own that it is subscribed to, see ``waiting.watch``
        self.known: set[Script] = set()  #: scripts that the server has run for this connection
        self.teaching: set[str] = set()  #: digests of scripts whose source is under way
        self._transport.set_protocol(self)

    # -- requests --------------------------------------------------------------------------------------------------

    def send(self, packed: bytes, timeout: float, replies: int = 1) -> asyncio.Future[Any]:
        """Send packed requests together; the reply (which may be a ``hiredis.ReplyError``), or the list of them."""
        future: asyncio.Future[Any] = self._new_future()
        if self.lost:
            future.set_exception(RequestFailed(f"{self.address}: connection lost", may_have_happened=False))
            return future
        try:
            batch = self._filling
            if batch is None:
                batch = self._begin_batch(timeout)
            requests = batch.requests
            requests.append(packed)
            self._pending.append((future, replies, timeout, batch))
            if timeout < batch.shortest:
                batch.shortest = timeout
            if len(requests) >= _BATCH:
                self._filling = None
        except BaseException:
            future.cancel()  # no caller gets it: asyncio would log that its exception was never retrieved
            self.abort("interrupted")
            raise
        return future

    def _begin_batch(self, timeout: float) -> _Batch:
        if not self._outgoing:
            self.loop.call_soon(self._flush)
            self._look_by(self.loop.time(), timeout)  # a signal may interrupt the loop before it is sent
        batch = self._filling = _Batch()
        self._outgoing.append(batch)
        return batch

    async def ask(self, commands: Sequence[Sequence[Argument]], timeout: float) -> list[Any]:
        """Send ``commands`` with nothing between them; all their replies."""
        packed = b"".join([pack(tuple(command)) for command in commands])
        answer = await self.send(packed, timeout, len(commands))
        return answer if len(commands) > 1 else [answer]

    @property
    def busy(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._pending)

    def unsubscribe(self, packed: bytes, timeout: float) -> None:
        """Send an UNSUBSCRIBE or SUNSUBSCRIBE. No caller waits for the answer.

        SUNSUBSCRIBE is answered by a push; or, if the slot has moved away, by an error, and then the server has sent
        the same push by itself, perhaps after this request. HELLO follows, to mark where the answer ends: no ACL
        refuses it.
        """
        if b"SUNSUB" in packed:
            self.send(packed + HELLO, timeout, _UNTIL_HELLO).cancel()
        else:
            self.send(packed, timeout).cancel()

    def _flush(self) -> None:
        try:
            while self._outgoing and not self.lost:
                if len(self._pending) - sum([len(each.requests) for each in self._outgoing]) >= _MOST_IN_FLIGHT:
                    return  # continued when the next reply arrives
                batch = self._outgoing[0]
                if batch is self._filling:
                    self._filling = None
                batch.sent = self.loop.time()
                self._transport.write(b"".join(batch.requests))
                batch.requests.clear()
                self._outgoing.popleft()
                self._look_by(batch.sent, batch.shortest)
        except BaseException:
            self.abort("interrupted")
            raise

    # -- timeouts --------------------------------------------------------------------------------------------------

    def _look_by(self, now: float, timeout: float) -> None:
        # A timer that is overdue by so much was lost to a signal.
        if now + timeout < self._due or self._due < now - _LOST_TIMER:
            self._look_at(now + timeout)

    def _look_at(self, when: float) -> None:
        # One timer for all, set again when it fires: most requests are long answered by then.
        if self._timer is not None:
            self._timer.cancel()
        self._due = when
        self._timer = self.loop.call_at(when, self._check_deadlines)

    def _check_deadlines(self) -> None:
        """Look twice. The loop may have been busy elsewhere since the reply arrived; before the second look it has
        read what was there, on every kind of loop. More than one read can hold is read in several turns."""
        self._due = math.inf
        try:
            self._flush()
            noticed, now = self._noticed, self.loop.time()
            if not self._pending:
                self._noticed = None
            elif noticed is None or self._behind:
                self._noticed, self._behind = now if noticed is None else noticed, False
                self._look_at(now + _SECOND_LOOK)
            else:
                self._noticed = None
                self._judge(noticed)
        except BaseException:
            self.abort("interrupted")
            raise

    def _judge(self, now: float) -> None:
        """Fail the requests whose deadline was before ``now``; if the connection proves unresponsive, reset it."""
        due, longest = math.inf, 0.0
        for future, _, timeout, batch in self._pending:
            if not future.done():
                deadline = batch.sent + timeout
                if deadline <= now:
                    future.set_exception(RequestFailed(f"{self.address}: no reply in time", may_have_happened=True))
                else:
                    due, longest = min(due, deadline), max(longest, timeout)
        # With no caller left, the timeout of the last one counts.
        longest = longest or self._pending[-1][2]
        longest = max(longest, min(_LATENCIES * self._latency, _LONGEST_LATENCY))
        oldest = self._pending[0][3].sent
        end = min(max(self._last_reply, oldest) + longest, oldest + _TOO_FAR_BEHIND * longest)
        if end <= now:
            self.abort("no reply in time")
        elif (when := min(due, end)) < self._due:
            self._look_at(when)

    # -- replies ---------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._reading and self._asks_once:
            self.abort("interrupted while reading")
        self._reading = True
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.lost:
            return
        pending, gets = self._pending, self._reader.gets
        self._behind = nbytes == _CHUNK
        answered: _Batch | None = None
        try:
            self._reader.feed(self._buffer, 0, nbytes)  # type: ignore[arg-type]  # any buffer will do
            while (reply := gets()) is not _NOTHING:
                if reply.__class__ is _PUSH and reply[0] not in CONFIRMATIONS:
                    self._on_push(reply)
                    continue
                future, replies, _, answered = pending[0]
                if replies == 1:
                    if reply.__class__ is ReplyError and is_unknown_script(reply):
                        self.known.clear()
                elif replies == _UNTIL_HELLO:
                    if reply.__class__ is not dict:
                        continue
                else:
                    self._partial.append(reply)
                    if len(self._partial) < replies:
                        continue
                    reply, self._partial = self._partial, []
                try:
                    future.set_result(reply)
                except asyncio.InvalidStateError:
                    pass  # its caller has gone
                pending.popleft()
            if answered is not None:
                self._last_reply = self.loop.time()
                self._latency = self._last_reply - answered.sent
                if self._outgoing:
                    self._flush()
            self._reading = False
        except (hiredis.ProtocolError, IndexError) as error:  # IndexError: a reply without a request
            self.abort(f"protocol error: {error}")
        except BaseException:
            self.abort("interrupted")
            raise

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"connection lost: {exc}" if exc is not None else "closed by the server")
        self._writer = None
        if not self._closed.done():
            self._closed.set_result(None)

    # -- the end ---------------------------------------------------------------------------------------------------

    def abort(self, reason: str) -> None:
        """Reset the connection; all waiting callers fail with ``reason``."""
        reset_on_close(self._transport.get_extra_info("socket"))
        self._transport.abort()
        self._fail(reason)

    def close(self) -> asyncio.Future[None]:
        """Reset the connection. The result is done when it is closed, in one of the next turns of the loop."""
        self.abort("closed")
        return self._closed

    def forget(self) -> None:
        """Close the bare descriptor: after a fork (the loop stayed in the parent), or after the loop's own end."""
        self.lost = True
        sock = getattr(self._transport.get_extra_info("socket"), "_sock", None)
        if sock is not None:
            sock.close()

    def _fail(self, reason: str) -> None:
        self.lost = True  # perhaps not for the first time: a signal may have interrupted this before all were failed
        if self._timer is not None:
            self._timer.cancel()
        while self._pending:
            future, _, _, batch = self._pending[0]
            if not future.done():
                was_sent = batch.sent < math.inf
                future.set_exception(RequestFailed(f"{self.address}: {reason}", may_have_happened=was_sent))
            self._pending.popleft()
        self._on_push((b"invalidate", None))  # waiters look again
