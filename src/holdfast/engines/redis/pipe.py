"""One multiplexed connection on an event loop: requests of many tasks, written together and answered in order."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import hiredis

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.channel import Argument
from holdfast.engines.redis.handshake import reset_on_close
from holdfast.engines.redis.packing import pack
from holdfast.engines.redis.pushes import CONFIRMATIONS

_NOTHING: Final = object()
_CHUNK: Final = 16384
#: In place of a number of replies: all that comes before the answer to a HELLO. It is a map, as no other answer here.
_UNTIL_HELLO: Final = 0
_HELLO: Final = pack(("HELLO",))


class Pipe(asyncio.BufferedProtocol):
    """Requests are written once per turn of the loop; the n-th reply belongs to the n-th request.

    A caller that is cancelled leaves its request behind: the reply is read and dropped, and the order stays right. If
    any request gets no reply in time, or the connection ends, all that wait fail together and the connection is reset.

    So it is if a signal handler raises in the middle of it. That ends the loop, but a user may run it once more to
    clean up: a request without its place in line, or bytes that were read and not counted, would then give everybody
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
        self._outgoing: list[bytes] = []
        # For each request: where its answer goes, how many replies make it up, and when it counts as lost.
        self._pending: deque[tuple[asyncio.Future[Any], int, float]] = deque()
        self._partial: list[Any] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf  # when the timer looks
        self._closed: asyncio.Future[None] = self.loop.create_future()
        self.lost = False
        self.tracking = False  #: CLIENT TRACKING is on
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
            self._outgoing.append(packed)
            deadline = loop.time() + timeout
            self._pending.append((future, replies, deadline))
            if deadline < self._due:
                self._look_at(deadline)
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
            if not self.lost:
                self._transport.write(b"".join(self._outgoing))
            self._outgoing.clear()
        except BaseException:
            self.abort("interrupted")
            raise

    def _check_deadlines(self) -> None:
        # One timer for all, set again when it fires: most requests are long answered by then.
        self._due = math.inf
        if not self._pending:
            return
        earliest = min(deadline for _, _, deadline in self._pending)
        if earliest <= self.loop.time():
            self.abort("no reply in time")
        else:
            self._look_at(earliest)

    def _look_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = when
        self._timer = self.loop.call_at(when, self._check_deadlines)

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
        try:
            self._reader.feed(self._buffer, 0, nbytes)  # type: ignore[arg-type]  # any buffer will do
            while (reply := gets()) is not _NOTHING:
                if reply.__class__ is hiredis.PushNotification and reply[0] not in CONFIRMATIONS:
                    self._on_push(reply)
                    continue
                future, replies, _ = pending[0]
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
            future, _, _ = self._pending[0]
            if not future.done():
                future.set_exception(RequestFailed(f"{self.address}: {reason}", may_have_happened=True))
            self._pending.popleft()
        self._on_push((b"invalidate", None))  # whoever waits for a push shall look for himself
