"""The floor: two EVALSHA round trips over a bare socket, without anything else that a library needs.

The scripts are the least that a re-entrant Redis lock can do: set a hash field with a TTL; delete it and publish. They
have no fencing token, no metadata and no protection against lost replies; holdfast's distance to the floor is the cost
of those.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import hiredis

TAKE: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.call('PTTL', KEYS[1]) end
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return nil
"""
GIVE: Final = """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end
if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], 0)
return 1
"""
TTL_MS: Final = 30_000


def packed_pair(redis: Any, name: str) -> tuple[bytes, bytes]:
    """The bytes of one acquire and one release of ``name``."""
    take: tuple[Any, ...] = ("EVALSHA", redis.script_load(TAKE), 1, name, "floor:1", TTL_MS)
    give: tuple[Any, ...] = ("EVALSHA", redis.script_load(GIVE), 2, name, f"channel:{{{name}}}", "floor:1")
    return hiredis.pack_command(take), hiredis.pack_command(give)


class BareSocket:
    """Sends prepared bytes and ignores the replies."""

    def __init__(self, host: str, port: int, redis: Any) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._take, self._give = packed_pair(redis, "floor")

    def pair(self) -> None:
        self._socket.sendall(self._take)
        self._socket.recv(128)
        self._socket.sendall(self._give)
        self._socket.recv(128)

    def close(self) -> None:
        self._socket.close()


def prepacked(redis: Any) -> Callable[[], None]:
    """The same two round trips on redis-py's own Connection."""
    connection = redis.connection_pool.get_connection()
    take, give = packed_pair(redis, "prepacked")

    def pair() -> None:
        connection.send_packed_command([take])
        connection.read_response()
        connection.send_packed_command([give])
        connection.read_response()

    return pair


class BarePipe(asyncio.Protocol):
    """One connection that writes all requests of one loop iteration together. No error handling, no timeouts."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._outgoing: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._waiting.popleft().set_result(reply)

    def call(self, packed: bytes) -> asyncio.Future[Any]:
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(packed)
        future = self._loop.create_future()
        self._waiting.append(future)
        return future

    def pair(self, take: bytes, give: bytes) -> Callable[[], Awaitable[None]]:
        async def once() -> None:
            await self.call(take)
            await self.call(give)

        return once

    def _flush(self) -> None:
        self._transport.write(b"".join(self._outgoing))
        self._outgoing.clear()

    def close(self) -> None:
        self._transport.close()
