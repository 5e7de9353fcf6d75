"""The way from a replica to its master, as a relay that can go dark: how a replica is made stale (faults R16, R17)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tests.servers.redis import RedisServer

_CONNECT_DEADLINE: Final = 5.0
_JOIN_DEADLINE: Final = 5.0
_CHUNK: Final = 1 << 16


class ReplicationLink:
    """Relays TCP to ``master``; the replica is told to replicate from ``port`` here.

    A frozen replica is not a stale one: what was sent waits in its socket and is applied when it wakes. Here nothing
    reaches it. Bytes are held back, not thrown away, as TCP would hold them: after ``heal`` they arrive, in order.
    """

    def __init__(self, master: RedisServer) -> None:
        self._master = (master.host, master.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        # Held while bytes are passed on, so that nothing is on its way when black_hole() returns.
        self._gate = threading.Condition()
        self._dark = False
        self._closed = False
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def black_hole(self) -> None:
        """From now on nothing passes, in either direction: no byte, no FIN, no new connection. All stay open."""
        with self._gate:
            self._dark = True

    def heal(self) -> None:
        with self._gate:
            self._dark = False
            self._gate.notify_all()

    def close(self) -> None:
        with self._gate:
            self._closed = True
            self._gate.notify_all()
            for end in self._sockets:
                _shut(end)  # wakes who reads or accepts
        for thread in self._threads:
            thread.join(_JOIN_DEADLINE)
        for end in self._sockets:
            end.close()

    # ---- inside

    def _run(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=target, args=arguments, name="replication-link", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                replica, _ = self._listener.accept()
            except OSError:
                return  # closed
            with self._gate:
                self._sockets.append(replica)
                if not self._pass():
                    return
                try:
                    master = socket.create_connection(self._master, _CONNECT_DEADLINE)
                except OSError:
                    _shut(replica)  # the master is gone: the replica hears of it as it would without us
                    continue
                master.settimeout(None)
                self._sockets.append(master)
                self._run(self._pump, replica, master)
                self._run(self._pump, master, replica)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        """Pass on what ``source`` says until its end, and the end."""
        data = b"?"
        while data:
            try:
                data = source.recv(_CHUNK)
            except OSError:
                data = b""
            with self._gate:
                if not self._pass():
                    return
                try:
                    sink.sendall(data)
                except OSError:
                    data = b""
                if not data:
                    _shut(source)
                    _shut(sink)

    def _pass(self) -> bool:
        """Wait for the light, with the gate in hand; False if it is closed instead."""
        self._gate.wait_for(lambda: self._closed or not self._dark)
        return not self._closed


def _shut(end: socket.socket) -> None:
    with suppress(OSError):  # not connected any more
        end.shutdown(socket.SHUT_RDWR)
