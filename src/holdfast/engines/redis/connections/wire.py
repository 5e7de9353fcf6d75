"""One blocking connection, from the first byte after the handshake. For one thread at a time."""

from __future__ import annotations

import errno
import functools
import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import hiredis

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections.handshake import reset_on_close
from holdfast.engines.redis.dialect.packing import Argument, pack
from holdfast.engines.redis.dialect.pushes import CONFIRMATIONS

_CHUNK: Final = 4096
#: In place of a reply that has not arrived.
NOTHING: Final[Any] = object()
_PUSH: Final = hiredis.PushNotification
#: How long the rest of a TLS record may take.
_RECORD: Final = 0.1
#: How much of a timeout must be left for it not to be set anew.
_MOST: Final = 0.8
#: If the time for a reply is over, but the server has answered (a push, part of the reply, that it does not know the
#: script): how long to wait for the rest (s).
LATE_REST: Final = 0.1
#: The other side is gone, whether or not it left something to read.
_GONE: Final = select.POLLHUP | select.POLLERR | select.POLLNVAL | getattr(select, "POLLRDHUP", 0)

OnPush = Callable[[hiredis.PushNotification], None]


def _skip(push: hiredis.PushNotification) -> None:
    """No listener: the push was for an earlier user of this connection."""


def _closed(*packed: bytes) -> Any:
    raise OSError(errno.EBADF, "closed")


def _end_of_stream() -> bytes:
    raise ConnectionResetError("closed by the server")


class Wire:
    """Requests and replies in turn, pushes in between.

    After any exception the state of the connection is unknown: ``abort`` it. A request that got no complete reply must
    never be followed by another one: that would be given the first one's reply. A signal may interrupt between any two
    steps, also right before an abort; so the wire itself counts the replies that are ``owed``, and a wire that is owed
    some must not be used.
    """

    __slots__ = (
        "__weakref__", "_poll", "_read", "_read_now", "_reader", "_sock", "_timeout", "_write",
        "address", "on_push", "owed", "rested", "subscribed", "tracking", "wakes",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, address: str) -> None:
        self._sock = sock
        self.address = address  #: of the server that it leads to
        self._reader = hiredis.Reader(notEnoughData=NOTHING)
        self._timeout = sock.gettimeout()
        # send() on a socket with a timeout polls first, but a small write hardly ever blocks. So does recv(): after a
        # signal it waits for what is left of the timeout. (With SO_RCVTIMEO, the kernel's, it would for all of it.)
        plain = not isinstance(sock, ssl.SSLSocket)
        self._write: Callable[[bytes], int] = functools.partial(os.write, sock.fileno()) if plain else sock.send
        self._read: Callable[[], bytes] = functools.partial(sock.recv, _CHUNK)
        self._read_now: Callable[[], bytes] | None = (
            functools.partial(os.read, sock.fileno(), _CHUNK) if plain else None
        )
        self._poll: select.poll | None = None
        self.on_push: OnPush = _skip
        self.owed = 0  #: replies still to come
        self.rested = 0.0  #: when it was last given back, on time.monotonic()
        self.tracking = False  #: CLIENT TRACKING is on
        self.subscribed = False  #: subscribed to a channel: not fit for a pool
        self.wakes: Any = None  #: channels of its own that it is subscribed to, see ``waiting.watch``

    def send(self, packed: bytes, timeout: float, replies: int = 1) -> None:
        """Send packed requests; a ``reply`` must be read for each."""
        sock = self._sock
        self.owed += replies
        try:
            if timeout != self._timeout:
                sock.settimeout(timeout)
                self._timeout = timeout
            sent = self._write(packed)
        except BlockingIOError:
            sent = 0  # the kernel's buffer is full: wait below
        except OSError as error:
            raise self._not_sent(error) from error
        if sent < len(packed):
            self._send_rest(packed, sent)

    def reply(self, deadline: float, first: Any = None) -> Any:
        """The next reply, which may be a ``hiredis.ReplyError``; ``deadline`` is on time.monotonic(). ``first``: what
        was read already."""
        reader = self._reader
        try:
            reply: Any = reader.gets() if first is None else first
            if first is None and reply is NOTHING:
                reader.feed(self._read() or _end_of_stream())
                reply = reader.gets()
            while reply is NOTHING or (reply.__class__ is _PUSH and reply[0] not in CONFIRMATIONS):
                self._shorten(deadline)
                if reply is NOTHING:
                    reader.feed(self._read() or _end_of_stream())
                else:
                    self.on_push(reply)
                reply = reader.gets()
            self.owed -= 1
            return reply
        except (OSError, hiredis.ProtocolError) as error:
            raise self._unanswered(error) from error

    def late_reply(self, deadline: float) -> Any:
        """As ``reply``, some time after the request was sent. A reply that has arrived is read even at the deadline,
        which another server may have used up; also if it comes after a push."""
        now = time.monotonic()
        left = deadline - now
        if left < _MOST * (self._timeout or 0.0):  # else the timeout that was set for sending is good enough
            self._timeout = max(left, 0.001)
            self._sock.settimeout(self._timeout)
        return self.reply(max(deadline, now + LATE_REST))

    def arrived_reply(self) -> Any:
        """The reply, if it has arrived; else ``NOTHING``. Never waits: one system call, where recv() with a timeout
        needs two."""
        if self._read_now is None:
            return NOTHING
        reader = self._reader
        try:
            reader.feed(self._read_now())
            reply = reader.gets()
        except (OSError, hiredis.ProtocolError):
            return NOTHING  # nothing has arrived yet; any other error comes again, or the end of the stream does
        if reply.__class__ is _PUSH:
            self.on_push(reply)
            return NOTHING
        if reply is not NOTHING:
            self.owed -= 1
        return reply

    def call(self, packed: bytes, timeout: float, now: float) -> Any:
        """Send one packed request; its reply. ``now`` is on time.monotonic()."""
        # As send and reply, for what nearly always happens: all is written at once, and what is read is the reply.
        sent, reader = 0, self._reader
        if timeout == self._timeout:
            self.owed = 1
            try:
                sent = self._write(packed)
            except BlockingIOError:
                pass
            except OSError as error:
                raise self._not_sent(error) from error
        else:
            self.send(packed, timeout)
            sent = len(packed)
        if sent < len(packed):
            self._send_rest(packed, sent)
        try:
            reader.feed(self._read() or _end_of_stream())
            reply = reader.gets()
        except (OSError, hiredis.ProtocolError) as error:
            raise self._unanswered(error) from error
        if reply is NOTHING or reply.__class__ is _PUSH:
            return self.reply(now + timeout, reply)
        self.owed = 0
        return reply

    def ask(self, commands: Sequence[Sequence[Argument]], timeout: float) -> list[Any]:
        """Send ``commands`` in one buffer, with nothing between them; all their replies."""
        deadline = time.monotonic() + timeout
        self.send(b"".join([pack(tuple(command)) for command in commands]), timeout, len(commands))
        return [self.reply(deadline) for _ in commands]

    def listen(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for something to arrive, and hand it to ``on_push``; whether anything did."""
        try:
            # A push that came in one packet with the last reply is in the reader already: polling would not see it.
            if self._drain():
                return True
            # What the reader has now is part of a push. Its rest may never come: a wait for it might never end.
            if not self._deciphered() and not self._polled(seconds):
                return False
            if self._read_now is None:
                self._shorten(time.monotonic() + _RECORD)  # readable, perhaps, but no whole record
            self._reader.feed((self._read_now or self._read)() or _end_of_stream())
            self._drain()
            return True
        except (TimeoutError, BlockingIOError):
            return False  # TLS: part of a record. Or the kernel has dropped what had arrived.
        except (OSError, hiredis.ProtocolError) as error:
            raise self._lost(error) from error

    def _drain(self) -> bool:
        """Hand what has arrived to ``on_push``; whether there was anything."""
        any_push = False
        while (push := self._reader.gets()) is not NOTHING:
            if push.__class__ is not hiredis.PushNotification:
                raise hiredis.ProtocolError("a reply without a request")
            self.on_push(push)
            any_push = True
        return any_push

    def is_dead(self) -> bool:
        """Whether either side has closed the connection. No I/O that could block."""
        if self._sock.fileno() < 0:
            return True
        events = self._polled(0.0)
        return bool(events) and bool(events[0][1] & _GONE)

    def mute(self) -> None:
        """Ignore pushes from now on. Those that were asked for may still arrive."""
        self.on_push = _skip

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        """Close it when nothing is in flight. After a fork, nothing is sent to the server either."""
        self._write = self._read = self._read_now = _closed  # the descriptor's number may soon be another file's
        self._sock.close()

    def abort(self) -> None:
        """Close it so that nothing unsent is sent any more."""
        reset_on_close(self._sock)
        self.close()

    # -- below: bytes ----------------------------------------------------------------------------------------------

    def _send_rest(self, packed: bytes, sent: int) -> None:
        try:
            self._sock.sendall(memoryview(packed)[sent:])
        except OSError as error:
            raise self._lost(error) from error

    def _not_sent(self, error: OSError) -> RequestFailed:
        # A plain write that fails has taken nothing. TLS may have written part of a record.
        return self._lost(error, may_have_happened=isinstance(self._sock, ssl.SSLSocket))

    def _shorten(self, deadline: float) -> None:
        """Part of a reply, or a push, has arrived: wait for the rest no longer than until ``deadline``."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        self._timeout = left

    def _deciphered(self) -> bool:
        """Whether TLS has decrypted something that is not in the socket's buffer any more."""
        return isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0

    def _polled(self, seconds: float) -> list[tuple[int, int]]:
        if self._sock.fileno() < 0:
            _closed()  # and not polled: the descriptor's number may be another file's by now
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self._sock, select.POLLIN | getattr(select, "POLLRDHUP", 0))
        return self._poll.poll(seconds * 1000.0)

    def _unanswered(self, error: Exception) -> RequestFailed:
        if isinstance(error, TimeoutError):
            return RequestFailed(f"{self.address}: no reply in time", may_have_happened=True)
        return self._lost(error)

    def _lost(self, error: Exception, *, may_have_happened: bool = True) -> RequestFailed:
        return RequestFailed(f"{self.address}: connection lost: {error}", may_have_happened=may_have_happened)
