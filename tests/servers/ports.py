"""Ports of 127.0.0.1 for servers. A chosen port stays reserved while its server is down."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from typing import Final

#: Below the range from which the kernel takes ports for outgoing connections: a client that keeps calling a dead server
#: would else some day be given that very port, be connected with itself, and the server could not restart.
PORTS: Final = range(10_000, 32_768)


def free_port() -> int:
    """A port on which no server listens at the moment."""
    # Not from the module random: seeded alike for each test, it would name the same ports again and again.
    while not is_free(port := secrets.choice(PORTS)):
        pass
    return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return _bound(probe, port)


class Kept:
    """Ports that ``is_free`` reports as taken, also in another run, until they are let go.

    Each is bound by a socket that never listens. A server may still bind it, as servers set SO_REUSEADDR. So
    does this class, but only after the bind: otherwise two of them could have the same port.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def keep(self, *ports: int) -> None:
        """These, in place of those that were kept before."""
        self.let_go()
        for port in ports:
            placeholder = socket.socket()
            self._sockets.append(placeholder)
            # Otherwise it was taken meanwhile: the server will report that.
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
