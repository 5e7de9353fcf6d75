"""Ports of 127.0.0.1 for servers. Who has chosen one keeps it while its server is down: nobody else is given it."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from typing import Final

#: Below the range from which the kernel takes ports for outgoing connections: a client that keeps calling a dead server
#: would else some day be given that very port, be connected with itself, and the server could not restart.
PORTS: Final = range(10_000, 32_768)


def free_port() -> int:
    """A port nobody listens on at the moment."""
    # Not from the module random: seeded alike for each test, it would name the same ports again and again.
    while not is_free(port := secrets.choice(PORTS)):
        pass
    return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return _bound(probe, port)


class Kept:
    """Ports that ``is_free`` denies to everybody else, also in another run, until they are let go.

    Each is bound by a socket that never listens. A server may still bind it, as servers say SO_REUSEADDR; so do we, but
    not before we have it, as two of us would else have the same one.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def keep(self, *ports: int) -> None:
        """These, in place of those that were kept before."""
        self.let_go()
        for port in ports:
            placeholder = socket.socket()
            self._sockets.append(placeholder)
            # Else it was taken since we looked: the server will say so.
            if _bound(placeholder, port):
                placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def let_go(self) -> None:
        while self._sockets:
            self._sockets.pop().close()


def _bound(end: socket.socket, port: int) -> bool:
    with suppress(OSError):
        end.bind(("127.0.0.1", port))
        return True
    return False
