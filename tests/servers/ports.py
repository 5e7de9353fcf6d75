"""Ports of 127.0.0.1 for servers. A chosen port stays reserved while its server is down."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from typing import Final

#: Below the range from which the kernel takes ports for outgoing connections: a client that keeps connecting to a dead
#: server could otherwise get that port as its own and connect to itself, and the server could not restart.
PORTS: Final = range(10_000, 32_768)


def free_port() -> int:
    """A port on which no server listens at the moment."""
    # Not from the module random, which is seeded the same for each test and would repeat the same ports.
    while not is_free(port := secrets.choice(PORTS)):
        pass
    return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return _bound(probe, port)


class ReservedPorts:
    """Ports that ``is_free`` reports as taken, also in another run, until they are released.

    Each is bound by a socket that never listens. A server may still bind it, as servers set SO_REUSEADDR. So
    does this class, but only after the bind: otherwise two instances could reserve the same port.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def reserve(self, *ports: int) -> None:
        """Reserve these ports in place of those reserved before."""
        self.release()
        for port in ports:
            placeholder = socket.socket()
            self._sockets.append(placeholder)
            # Otherwise the port was taken meanwhile, which the server will report.
            if _bound(placeholder, port):
                placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def release(self) -> None:
        while self._sockets:
            self._sockets.pop().close()


def _bound(end: socket.socket, port: int) -> bool:
    with suppress(OSError):
        end.bind(("127.0.0.1", port))
        return True
    return False
