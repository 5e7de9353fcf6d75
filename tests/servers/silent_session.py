"""A ZooKeeper session that sends only the requests of a test: no pings, no retries."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Final, Self

from tests.servers.zookeeper_wire import EVENT_XID, Frames, Op, Reply, framed, read_reply, write_request

_TIMEOUT: Final = 5.0
_EPHEMERAL: Final = 1
_CONTAINER: Final = 4
_ALL_RIGHTS: Final = 31
_PING_XID: Final = -2
# Version, last transaction seen, timeout in ms, session (0: a new one), and a password.
_CONNECT: Final = struct.Struct(">iqiqi16s")
_CONNECTED: Final = struct.Struct(">iiqi16s")
_INT: Final = struct.Struct(">i")


class SilentSession:
    """``with SilentSession("127.0.0.1", 2181, 2.0) as session:``; leaving it disconnects, and the session expires.

    A client library would hide when exactly a session ends whose last message was sent at a known time.
    ``resume``: continue that session on another connection instead of creating a new one.
    """

    def __init__(self, host: str, port: int, timeout: float, *, resume: SilentSession | None = None) -> None:
        self._socket = socket.create_connection((host, port), _TIMEOUT)
        self._frames = Frames()
        self._payloads: list[bytes] = []
        self._xid = 0
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.session_id: int = resume.session_id if resume else 0
        self._password: bytes = resume._password if resume else b""
        self._socket.sendall(framed(_CONNECT.pack(0, 0, round(timeout * 1000), self.session_id, 16, self._password)))
        _, milliseconds, self.session_id, _, self._password = _CONNECTED.unpack_from(self._receive())
        #: The timeout that the server granted, in seconds; 0 if it refused.
        self.timeout = milliseconds / 1000

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def disconnect(self) -> None:
        """Callable from any thread; a caller that waits for an answer gets an OSError."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def create(self, path: str, op: Op = Op.CREATE) -> Reply:
        """Create an ephemeral node, or with CREATE_CONTAINER a container."""
        anyone = _INT.pack(1) + _INT.pack(_ALL_RIGHTS) + _text("world") + _text("anyone")
        flags = _CONTAINER if op is Op.CREATE_CONTAINER else _EPHEMERAL
        return self._ask(op, _text(path) + _text("") + anyone + _INT.pack(flags))[0]

    def set_data(self, path: str, data: str) -> Reply:
        return self._ask(Op.SET_DATA, _text(path) + _text(data) + _INT.pack(-1))[0]

    def get_data(self, path: str) -> Reply:
        return self._ask(Op.GET_DATA, _text(path) + b"\0")[0]

    def sync(self, path: str) -> Reply:
        return self._ask(Op.SYNC, _text(path))[0]

    def begin_sasl(self) -> bytes:
        """Request the challenge, and do not answer it."""
        return self._ask(Op.SASL, _text(""))[1]

    def ping(self) -> Reply:
        return self._ask(Op.PING, b"", _PING_XID)[0]

    # ---- internals

    def _ask(self, op: Op, body: bytes, xid: int | None = None) -> tuple[Reply, bytes]:
        """Send, and wait for the answer: header and body."""
        if xid is None:
            self._xid = xid = self._xid + 1
        self._socket.sendall(write_request(xid, op, body))
        while True:
            reply, answer = read_reply(self._receive())
            if reply.xid != EVENT_XID:
                assert reply.xid == xid, f"the answer to {reply.xid} instead of {xid}"
                return reply, answer

    def _receive(self) -> bytes:
        while not self._payloads:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the server has disconnected")
            self._payloads += self._frames.feed(data)
        return self._payloads.pop(0)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _INT.pack(len(encoded)) + encoded
