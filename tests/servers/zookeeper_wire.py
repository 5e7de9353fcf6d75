"""ZooKeeper's wire format, as far as tests need it: frames and their headers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

_LENGTH: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">ii")
_REPLY: Final = struct.Struct(">iqi")

# Far more than a server sends or accepts: a longer frame means another protocol.
_LONGEST: Final = 1 << 24

#: The xid of messages that are not replies.
EVENT_XID: Final = -1


class ProtocolError(Exception):
    """Raised when the data is not ZooKeeper's protocol."""


class Op(IntEnum):
    """The operation of a request. EVENT and CONNECT are not operations on the wire; they name the server's events and
    the first message of a connection."""

    EVENT = 0
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CONNECT = -10
    CLOSE = -11


class Reply(NamedTuple):
    """The header of a reply. ``zxid``: the last transaction that the server has seen; ``error``: 0 on success."""

    xid: int
    zxid: int
    error: int


class Frames:
    """Reassembles frames from data split anywhere; yields each without its length."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._rest += data
        while len(self._rest) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._rest)
            if not 0 <= length <= _LONGEST:
                raise ProtocolError(f"a frame of {length} bytes: {self._rest[:32]!r}")
            end = _LENGTH.size + length
            if len(self._rest) < end:
                return
            payload, self._rest = self._rest[_LENGTH.size : end], self._rest[end:]
            yield payload


def framed(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


def read_request(payload: bytes) -> tuple[int, Op, bytes]:
    """xid, operation and body of any request but the first of a connection, which has no header."""
    try:
        xid, op = _REQUEST.unpack_from(payload)
        return xid, Op(op), payload[_REQUEST.size :]
    except (struct.error, ValueError) as error:
        raise ProtocolError(f"not a request: {payload[:32]!r}") from error


def write_request(xid: int, op: Op, body: bytes) -> bytes:
    return framed(_REQUEST.pack(xid, op) + body)


def read_reply(payload: bytes) -> tuple[Reply, bytes]:
    """Header and body of any reply or event but the first of a connection."""
    try:
        return Reply(*_REPLY.unpack_from(payload)), payload[_REPLY.size :]
    except struct.error as error:
        raise ProtocolError(f"not a reply: {payload[:32]!r}") from error
