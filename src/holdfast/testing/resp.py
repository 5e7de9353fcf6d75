"""Finds the frames of RESP2 and RESP3 in a stream of bytes. Pure."""

from __future__ import annotations

from typing import Final

_LINES: Final = frozenset(b"+-:,#_(")
_BULKS: Final = frozenset(b"$=!")
_ARRAYS: Final = frozenset(b"*~>")
_MAP: Final = ord("%")
_ATTRIBUTE: Final = ord("|")

#: Unsolicited messages of a subscribed RESP2 connection. In RESP3 these are pushes.
_MESSAGES: Final = frozenset({b"message", b"pmessage", b"smessage"})
#: Replies to SUBSCRIBE and similar commands: one for each channel; pushes in RESP3.
_CONFIRMATIONS: Final = frozenset(
    {b"subscribe", b"psubscribe", b"ssubscribe", b"unsubscribe", b"punsubscribe", b"sunsubscribe"}
)


class ProtocolError(ValueError):
    """Raised for bytes that are not RESP. The proxy must not guess: a miscounted reply would falsify the test."""


def frame_end(buffer: bytes | bytearray, start: int = 0, *, inline: bool = False) -> int | None:
    """Where the frame that begins at ``start`` ends; None if it is not complete yet.

    ``inline``: a frame of no RESP type is one line, as servers accept it from telnet.
    """
    at, missing = start, 1
    while missing:
        line_end = buffer.find(b"\r\n", at)
        if line_end < 0:
            return None
        kind, missing, after = buffer[at], missing - 1, line_end + 2
        if kind in _BULKS:
            size = _number(buffer[at + 1 : line_end])
            after += size + 2 if size >= 0 else 0  # $-1 is RESP2's null, without a body
        elif kind in _ARRAYS:
            missing += max(0, _number(buffer[at + 1 : line_end]))
        elif kind == _MAP:
            missing += 2 * _number(buffer[at + 1 : line_end])
        elif kind == _ATTRIBUTE:  # describes the value that follows it: together they are one reply
            missing += 2 * _number(buffer[at + 1 : line_end]) + 1
        elif kind not in _LINES and not inline:
            raise ProtocolError(f"a frame cannot begin with {bytes([kind])!r}")
        at = after
        if at > len(buffer):
            return None
    return at


def _number(digits: bytes | bytearray) -> int:
    try:
        return int(digits)
    except ValueError:
        raise ProtocolError(f"{bytes(digits[:20])!r} is not a length") from None


class Frames:
    """Reassembles frames from data split anywhere."""

    def __init__(self, *, inline: bool = False) -> None:
        self._buffer = bytearray()
        self._inline = inline

    def feed(self, data: bytes) -> list[bytes]:
        """The frames completed by ``data``, each as it was on the wire."""
        self._buffer += data
        frames, start = [], 0
        while start < len(self._buffer):
            end = frame_end(self._buffer, start, inline=self._inline)
            if end is None:
                break
            frames.append(bytes(self._buffer[start:end]))
            start = end
        del self._buffer[:start]
        return frames


def words(frame: bytes) -> tuple[bytes, ...]:
    """The arguments of a request: an array of bulk strings, or an inline line."""
    if not frame.startswith(b"*"):
        return tuple(frame.split())
    found, at = [], frame.index(b"\r\n") + 2
    while at < len(frame):
        line_end = frame.index(b"\r\n", at)
        if frame[at] not in _BULKS:
            raise ProtocolError("a request is an array of bulk strings")
        size = _number(frame[at + 1 : line_end])
        found.append(frame[line_end + 2 : line_end + 2 + size])
        at = line_end + 2 + size + 2
    return tuple(found)


def _first_bulk(frame: bytes) -> bytes | None:
    """The first element of an array or push, if it is a bulk string."""
    start = frame.index(b"\r\n") + 2
    if frame[:1] not in (b"*", b">") or frame[start : start + 1] != b"$":
        return None
    line_end = frame.index(b"\r\n", start)
    return frame[line_end + 2 : line_end + 2 + _number(frame[start + 1 : line_end])].lower()


def is_confirmation(frame: bytes) -> bool:
    """Whether this answers (one channel of) a SUBSCRIBE or a similar command."""
    return _first_bulk(frame) in _CONFIRMATIONS


def is_push(frame: bytes) -> bool:
    """Whether the server sent this unsolicited. For arrays, meaningful only on a connection that has subscribed."""
    return frame.startswith(b">") or _first_bulk(frame) in _MESSAGES
