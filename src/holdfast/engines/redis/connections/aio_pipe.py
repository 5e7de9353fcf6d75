"""One multiplexed connection on an event loop: requests of many tasks, written together and answered in order."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import hiredis

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections.handshake import reset_on_close
from holdfast.engines.redis.dialect.packing import Argument, pack
from holdfast.engines.redis.dialect.pushes import CONFIRMATIONS

_NOTHING: Final = object()
_CHUNK: Final = 16384
#: Requests that may be under way at once: a server does them in some ten milliseconds. Were ten thousand sent, the last
#: ones would be late because of the others, and asked once more.
_UNDER_WAY: Final = 512
_BATCH: Final = 128
#: Between the moment when a request's time is up and the verdict, the loop reads what has arrived. (s)
_SECOND_LOOK: Final = 0.001
_LOST_TIMER: Final = 1.0
#: A connection is not silent before this many times its usual latency, nor because of it for longer than so (s).
_LATENCIES: Final = 2
_LONGEST_LATENCY: Final = 1.0
#: Replies that are late by this many time-outs serve no caller: better to drop all that the server has still to do.
_TOO_FAR_BEHIND: Final = 2
#: In place of a number of replies: all that comes before the answer to a HELLO. It is a map, as no other answer here.
_UNTIL_HELLO: Final = 0
_HELLO: Final = pack(("HELLO",))


class _Batch:
    """Requests that are written together, and whose time begins then: what the loop does before (ten thousand callers
    that start at once take seconds) and the wait for requests before them are no silence of the server."""

    __slots__ = ("requests", "sent", "shortest")

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.shortest = math.inf  # of their time-outs
        self.sent = math.inf  # on the loop's clock


class Pipe(asyncio.BufferedProtocol):
    """Requests are written once per turn of the loop, as many as a server can do soon; the others wait for replies to
    these. The n-th reply belongs to the n-th request.

    A caller that is cancelled, or whose time is up, leaves its request behind: the reply is read and dropped, and the
    order stays right. That is safe because a request without a reply "may have happened": the claim of a late acquire
    is unresolved, so it is asked for again or withdrawn.

    If the connection ends, or is silent, all that wait fail together and it is reset. Silent: no reply has come for as
    long as the most patient caller waits. One with a short time-out must not reset what all share, and in a black hole
    there may always be one that has just begun to wait.

    It is also reset if a signal handler raises in the middle of it. That ends the loop, but a user may run it once more
    to clean up: a request without its place in line, or bytes that were read and not counted, would then give everybody
    the reply to another's request. asyncio's own code may be struck too, between reading and telling us: hence a buffer
    of ours, for which it has to ask first.
    """

    def __init__(self, writer: asyncio.StreamWriter, address: str, on_push: Callable[[Sequence[Any]], None]) -> None:
        # The writer is kept only because its finaliser would close the transport.
        self._writer: asyncio.StreamWriter | None = writer
        self._transport = cast(asyncio.Transport, writer.transport)
        self.address = address  #: of the server that it leads to
        self._on_push = on_push
        self.loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._buffer = memoryview(bytearray(_CHUNK))
        self._reading = False
        # TLS, and other loops than asyncio's, also ask for the buffer when there turns out to be nothing to read.
        is_plain = self._transport.get_extra_info("sslcontext") is None
        self._asks_once = is_plain and isinstance(self.loop, asyncio.SelectorEventLoop)
        self._outgoing: deque[_Batch] = deque()
        self._unsent = 0  # how many requests these have
        # For each request: where its answer goes, how many replies make it up, how long it may take, and since when.
        self._pending: deque[tuple[asyncio.Future[Any], int, float, _Batch]] = deque()
        self._partial: list[Any] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf  # when the timer looks
        self._noticed: float | None = None  # when it has looked first
        self._behind = False  # more has arrived than was read
        self._heard = -math.inf  # when the last reply was read
        self._latency = 0.0  # of that reply
        self._closed: asyncio.Future[None] = self.loop.create_future()
        self.lost = False
        self.tracking = False  #: CLIENT TRACKING is on
        self.teaching: set[str] = set()  #: digests of scripts whose source is on its way
        self._transport.set_protocol(self)

    # -- requests --------------------------------------------------------------------------------------------------

    def send(self, packed: bytes, timeout: float, replies: int = 1) -> asyncio.Future[Any]:
        """Send packed requests together; the reply (which may be a ``hiredis.ReplyError``), or the list of them."""
        loop = self.loop
        future: asyncio.Future[Any] = loop.create_future()
        if self.lost:
            future.set_exception(RequestFailed(f"{self.address}: connection lost", may_have_happened=False))
            return future
        try:
            if not self._outgoing:
                loop.call_soon(self._flush)
                self._outgoing.append(_Batch())
                self._look_by(loop.time(), timeout)  # a signal may interrupt the loop before it is sent
            batch = self._outgoing[-1]
            if len(batch.requests) == _BATCH:
                batch = _Batch()
                self._outgoing.append(batch)
            batch.requests.append(packed)
            self._pending.append((future, replies, timeout, batch))
            self._unsent += 1
            if timeout < batch.shortest:
                batch.shortest = timeout
        except BaseException:
            self.abort("interrupted")
            raise
        return future

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
        """Send an UNSUBSCRIBE or SUNSUBSCRIBE. Nobody waits for the answer.

        SUNSUBSCRIBE is answered by a push; or, if the slot has moved away, by an error, and then the same push has come
        unasked, perhaps after this was sent. To be sure where its answer ends, HELLO follows: no ACL refuses it.
        """
        if b"SUNSUB" in packed:
            self.send(packed + _HELLO, timeout, _UNTIL_HELLO).cancel()
        else:
            self.send(packed, timeout).cancel()

    def _flush(self) -> None:
        try:
            while self._outgoing and not self.lost:
                if len(self._pending) - self._unsent >= _UNDER_WAY:
                    return  # the next reply goes on with it
                batch = self._outgoing[0]
                batch.sent = self.loop.time()
                self._transport.write(b"".join(batch.requests))
                self._unsent -= len(batch.requests)
                batch.requests.clear()
                self._outgoing.popleft()
                self._look_by(batch.sent, batch.shortest)
        except BaseException:
            self.abort("interrupted")
            raise

    # -- time-outs -------------------------------------------------------------------------------------------------

    def _look_by(self, now: float, timeout: float) -> None:
        # Overdue by so much, the timer was lost to a signal.
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
        """Fail the requests whose time was up at ``now``; if that shows the connection to be silent, reset it."""
        due, patience = math.inf, 0.0
        for future, _, timeout, batch in self._pending:
            if not future.done():
                deadline = batch.sent + timeout
                if deadline <= now:
                    future.set_exception(RequestFailed(f"{self.address}: no reply in time", may_have_happened=True))
                else:
                    due, patience = min(due, deadline), max(patience, timeout)
        # With no caller left, what counts is how long the last one would have waited.
        patience = patience or self._pending[-1][2]
        patience = max(patience, min(_LATENCIES * self._latency, _LONGEST_LATENCY))
        oldest = self._pending[0][3].sent
        end = min(max(self._heard, oldest) + patience, oldest + _TOO_FAR_BEHIND * patience)
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
                if reply.__class__ is hiredis.PushNotification and reply[0] not in CONFIRMATIONS:
                    self._on_push(reply)
                    continue
                future, replies, _, batch = pending[0]
                if replies == _UNTIL_HELLO and reply.__class__ is not dict:
                    continue
                if replies > 1:
                    self._partial.append(reply)
                    if len(self._partial) < replies:
                        continue
                    reply, self._partial = self._partial, []
                if not future.done():
                    future.set_result(reply)
                pending.popleft()
                answered = batch
            if answered is not None:
                self._heard = self.loop.time()
                self._latency = self._heard - answered.sent
                if self._unsent > 0:
                    self._flush()
            self._reading = False
        except (hiredis.ProtocolError, IndexError) as error:  # IndexError: a reply that nobody asked for
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
        """Reset the connection; everybody who waits fails with ``reason``."""
        reset_on_close(self._transport.get_extra_info("socket"))
        self._transport.abort()
        self._fail(reason)

    async def close(self) -> None:
        """Close and wait until it is closed: a loop that ends with an open transport complains."""
        self.abort("closed")
        await asyncio.shield(self._closed)

    def forget(self) -> None:
        """Close the bare descriptor: after a fork (the loop stayed in the parent), or after the loop's own end."""
        self.lost = True
        sock = getattr(self._transport.get_extra_info("socket"), "_sock", None)
        if sock is not None:
            sock.close()

    def _fail(self, reason: str) -> None:
        self.lost = True  # more than once, perhaps: a signal may have struck before all were told
        if self._timer is not None:
            self._timer.cancel()
        while self._pending:
            future, _, _, batch = self._pending[0]
            if not future.done():
                was_sent = batch.sent < math.inf
                future.set_exception(RequestFailed(f"{self.address}: {reason}", may_have_happened=was_sent))
            self._pending.popleft()
        self._on_push((b"invalidate", None))  # whoever waits for a push shall look for himself
