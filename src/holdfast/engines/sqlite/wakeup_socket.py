"""Waking a waiter or a watchdog in another process: one datagram to a socket in the private directory.

A datagram is only a hint: its receiver reads the lock file again. The sender never blocks.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Final

from holdfast.engines.sqlite.liveness import remove
from holdfast.engines.sqlite.paths import PrivateDirectory

#: What a socket is for, as part of its file name. Processes with other versions of holdfast look for these names.
FOR_WAITER: Final = "wait"
FOR_WATCHDOG: Final = "doze"
#: The message to a waiter that the name was handed over to. Others are empty.
HANDED_OVER: Final = b"handed over"
# The address has no receiver any more: the file is gone, or its process is.
_NO_RECEIVER: Final = frozenset({errno.ENOENT, errno.ECONNREFUSED, errno.ENOTSOCK, errno.EPROTOTYPE})
_LARGEST: Final = 8192


class WakeupSocket:
    """A datagram socket that other processes send wake-ups to. Its user closes it; housekeeping removes the socket of
    a killed process."""

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

    def drain(self) -> list[bytes]:
        """All messages that have arrived since the last call. Never blocks."""
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


def is_for_watchdog(name: str) -> bool:
    """Whether the file ``name`` is a watchdog's wake-up socket."""
    return f".{FOR_WATCHDOG}-" in name


def send_wakeup(directory: PrivateDirectory, name: str, message: bytes = b"") -> bool:
    """Wake the owner of a socket. False if it is gone; other failures count as sent, since waiters re-poll."""
    try:
        address = directory.address(name)
        try:
            directory.sender.sendto(message, address)
        except BlockingIOError:
            # What frozen receivers have not read fills the buffer of the sender: another one has its own.
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(message, address)
    except OSError as error:
        return error.errno not in _NO_RECEIVER
    return True


def bind_private(unbound: socket.socket, directory: PrivateDirectory, name: str) -> None:
    """Bind with mode 0600. On Linux the file takes the socket's mode; elsewhere the directory's 0700 protects it."""
    try:
        os.fchmod(unbound.fileno(), 0o600)
    except OSError:
        pass
    unbound.bind(directory.address(name))
