"""A plain RESP3 connection to a real Redis that separates pushes. The model is compared with it."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Self

import hiredis

from tests.servers.redis import RedisServer


class RawConnection:
    """One connection. ``call`` sends one command and returns its reply as in RESP2."""

    def __init__(self, server: RedisServer) -> None:
        self._socket = socket.create_connection((server.host, server.port), timeout=10)
        self._reader = hiredis.Reader()
        self.pushes: list[tuple[Any, ...]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def call(self, *words: str | bytes | int) -> Any:
        self._socket.sendall(hiredis.pack_command(words))  # type: ignore[arg-type]  # any number of words
        while isinstance(reply := self._next(), hiredis.PushNotification):
            self._keep(reply)
        return reply

    def _next(self) -> Any:
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65536))
        return reply

    def _keep(self, push: Any) -> None:
        kind, *rest = push
        self.pushes.append((kind.decode(), *rest))
