"""One client's connection through the fault proxy: two pumps, and the assignment of replies to requests."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from typing import Final, Protocol

from holdfast.testing import resp
from holdfast.testing.faults import Rule, Words

_SUBSCRIBING: Final = frozenset(
    {b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE", b"UNSUBSCRIBE", b"PUNSUBSCRIBE", b"SUNSUBSCRIBE"}
)
#: Commands that are repeated on a duplicate's own connection, so that the duplicate has the same meaning there.
_REPLAYED: Final = frozenset({b"HELLO", b"AUTH", b"SELECT"})
_CHUNK: Final = 65536


class Proxy(Protocol):
    """What a link needs from the proxy."""

    def match(self, request: Words) -> Rule | None: ...

    def keep_duplicate(self, handshake: list[bytes], frame: bytes) -> None: ...


class Expected:
    """An expected reply: the request that it answers, and the rule for it."""

    __slots__ = ("request", "rule")

    def __init__(self, request: Words, rule: Rule | None) -> None:
        self.request = request
        self.rule = rule


class Link:
    """One connection. ``silent``: no data passes, but the connections stay open."""

    def __init__(
        self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, silent: bool
    ) -> None:
        self.silent = silent
        self._proxy = proxy
        self._client_in, self._client_out = reader, writer
        self._server_out: asyncio.StreamWriter | None = None
        self._was_reset = False
        self._subscribed = False
        self._handshake: list[bytes] = []
        self._due: deque[Expected] = deque()
        self._confirmations: deque[Expected] = deque()

    async def run(self, host: str, port: int) -> None:
        """Pass data until both sides are closed."""
        try:
            if self.silent:  # a partition: the server is not contacted, and the client gets no error
                await self._swallow()
            else:
                await self._pump(host, port)
        except resp.ProtocolError:
            self.reset()
            raise
        finally:
            await _closed(self._client_out)
            if self._server_out is not None:
                await _closed(self._server_out)

    async def _swallow(self) -> None:
        try:
            while await self._client_in.read(_CHUNK):
                pass
        except ConnectionError:
            pass

    async def _pump(self, host: str, port: int) -> None:
        try:
            server_in, self._server_out = await asyncio.open_connection(host, port)
        except OSError:
            self.reset()  # the server is down: the client must get an error
            return
        pumps = [asyncio.ensure_future(self._upstream(self._server_out))]
        pumps.append(asyncio.ensure_future(self._downstream(server_in)))
        try:
            await asyncio.gather(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    def reset(self) -> None:
        """Reset the client's connection (RST), discarding pending data; the server sees a normal close."""
        self._was_reset = True
        sock = self._client_out.get_extra_info("socket")
        if not self._client_out.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._client_out.transport.abort()
        if self._server_out is not None:
            self._server_out.close()

    # ---- client to server

    async def _upstream(self, server_out: asyncio.StreamWriter) -> None:
        frames = resp.Frames(inline=True)
        try:
            while data := await self._client_in.read(_CHUNK):
                for frame in () if self.silent else frames.feed(data):
                    if self.silent or self._was_reset:
                        break
                    await self._request(frame, server_out)
        except ConnectionError:
            pass  # the client or the server has closed; the other pump notices it too
        finally:
            server_out.close()  # after pending data: requests under way still arrive

    async def _request(self, frame: bytes, server_out: asyncio.StreamWriter) -> None:
        request = resp.words(frame)
        verb = request[0].upper() if request else b""
        if verb in _REPLAYED:
            self._handshake.append(frame)
        rule = self._proxy.match(request)
        sliced = False
        if rule is not None:
            sliced = rule.fault.kind == "slice"
            if rule.fault.side == "request":
                rule.fire(request)
                match rule.fault.kind:
                    case "drop_request_and_reset":
                        return self.reset()
                    case "drop_request_black_hole":
                        self.silent = True
                        return None
                    case "delay":
                        await rule.held()
                    case "duplicate":
                        self._proxy.keep_duplicate(self._handshake, frame)
                rule = None
        self._expect(verb, request, rule)
        await _send(server_out, frame, sliced=sliced)
        return None

    def _expect(self, verb: bytes, request: Words, rule: Rule | None) -> None:
        if verb in _SUBSCRIBING:
            self._subscribed = True
            self._confirmations.append(Expected(request, rule))
            self._confirmations.extend(Expected(request, None) for _ in request[2:])
        elif request:  # an empty request has no reply
            self._due.append(Expected(request, rule))

    # ---- server to client

    async def _downstream(self, server_in: asyncio.StreamReader) -> None:
        frames = resp.Frames()
        broken = False
        try:
            while data := await server_in.read(_CHUNK):
                for frame in frames.feed(data):
                    await self._reply(frame)
        except ConnectionError:
            broken = True
        if self.silent or self._was_reset:
            return  # a black hole hides even that the server has closed
        if broken:
            self.reset()
        else:
            self._client_out.close()

    async def _reply(self, frame: bytes) -> None:
        expected = self._answered(frame)
        rule = expected.rule if expected is not None else None
        if rule is not None and expected is not None:
            if frame.startswith(b"-NOSCRIPT"):
                rule.forget_one()
                rule = None
            else:
                await self._apply(rule, expected.request)
        if not (self.silent or self._was_reset):
            await _send(self._client_out, frame, sliced=rule is not None and rule.fault.kind == "slice")

    async def _apply(self, rule: Rule, request: Words) -> None:
        match rule.fault.kind:
            case "drop_reply_and_reset":
                self.reset()
            case "black_hole":
                self.silent = True
        rule.fire(request)
        if rule.fault.kind == "delay":
            await rule.held()

    def _answered(self, frame: bytes) -> Expected | None:
        """The request that ``frame`` answers; None for a push."""
        if self._subscribed and resp.is_confirmation(frame):
            return self._confirmations.popleft() if self._confirmations else None
        if frame.startswith(b">") or (self._subscribed and resp.is_push(frame)):
            return None
        if not self._due:
            raise resp.ProtocolError("a reply to no request: the proxy has lost count")
        return self._due.popleft()


async def _send(writer: asyncio.StreamWriter, frame: bytes, *, sliced: bool) -> None:
    for piece in [frame[at : at + 1] for at in range(len(frame))] if sliced else [frame]:
        writer.write(piece)
        await writer.drain()
        if sliced:
            await asyncio.sleep(0)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        await writer.wait_closed()
    except (ConnectionError, OSError):
        pass  # reset by either side: it is closed
