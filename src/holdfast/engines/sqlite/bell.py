"""Waking somebody in another process: one datagram to a socket in the private directory.

A bell is a hint, never the truth: who hears it looks into the file. The sender never blocks.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Final

from holdfast.engines.sqlite.liveness import remove
from holdfast.engines.sqlite.paths import PrivateDirectory

# Nobody is behind the address any more: the file is gone, or its process is.
_NOBODY: Final = frozenset({errno.ENOENT, errno.ECONNREFUSED, errno.ENOTSOCK, errno.EPROTOTYPE})
_LARGEST: Final = 8192


class Bell:
    """A socket that can be rung. Closed by its user; left over by a killed process, it is swept with the rest."""

    def __init__(self, directory: PrivateDirectory, name: str) -> None:
        self.name = name
        self._directory = directory
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            bind_private(self._socket, directory, name)
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def heard(self) -> list[bytes]:
        """Everything that was rung since the last call. Never blocks."""
        messages = []
        try:
            while True:
                messages.append(self._socket.recv(_LARGEST))
        except OSError:
            return messages

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._socket.close()
            if self._directory.fileno >= 0:
                remove(self._directory.fileno, self.name)

    def disown(self) -> None:
        """In a forked child: close our copy; the socket and its file are the parent's."""
        self._socket.close()


def ring(directory: PrivateDirectory, name: str, message: bytes = b"") -> bool:
    """Ring a bell. False if nobody is there to hear it (any other trouble counts as rung: they re-poll)."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(message, directory.address(name))
    except OSError as error:
        return error.errno not in _NOBODY
    return True


def bind_private(unbound: socket.socket, directory: PrivateDirectory, name: str) -> None:
    """Bind with mode 0600. (On Linux the new file takes the socket's mode; elsewhere the directory's 0700 must do.)"""
    try:
        os.fchmod(unbound.fileno(), 0o600)
    except OSError:
        pass
    unbound.bind(directory.address(name))
