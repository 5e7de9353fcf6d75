"""Noticing the end of a process immediately, without its pid: a connection that the kernel resets.

Each process listens on a stream socket and never accepts. A waiter connects to the holder's socket and includes the
connection in its sleep. When the listener disappears, for whatever reason, the kernel resets the connection and the
waiter wakes up. This is only a hint: liveness.py decides whether the process is dead. Where no connection can be made,
the waiter polls.
"""

from __future__ import annotations

import socket
from typing import Final

from holdfast.engines.sqlite.liveness import remove
from holdfast.engines.sqlite.paths import PrivateDirectory
from holdfast.engines.sqlite.wakeup_socket import bind_private

_BACKLOG: Final = 1024  # the kernel caps it at somaxconn; a waiter that finds it full polls


class ProcessListener:
    """This process's listening socket: it exists as long as the process lives."""

    def __init__(self, directory: PrivateDirectory, identity: str) -> None:
        """OSError where no socket can be made: then this process cannot be watched, and waiters poll."""
        self._directory = directory
        self._name = _name(identity)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            bind_private(self._socket, directory, self._name)
            self._socket.listen(_BACKLOG)
        except BaseException:
            self._socket.close()
            raise

    def drop_watches(self) -> None:
        """Close all connections: abandoned ones stay in the backlog and would fill it. Waiters connect again."""
        try:
            while True:
                self._socket.accept()[0].close()
        except OSError:
            pass  # the backlog is empty

    def close(self) -> None:
        self._socket.close()
        remove(self._directory.fileno, self._name)

    def disown(self) -> None:
        """In a forked child: close our copy; an open one would hide the parent's death."""
        self._socket.close()


class ProcessWatch:
    """A connection to another process's listener. OSError if the process is gone or its backlog is full."""

    def __init__(self, directory: PrivateDirectory, identity: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            self._socket.connect(directory.address(_name(identity)))
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def has_ended(self) -> bool:
        """Whether the other side has closed the connection."""
        try:
            self._socket.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True  # reset, or end of file: nothing is ever sent on it

    def close(self) -> None:
        self._socket.close()

    disown = close


def _name(identity: str) -> str:
    return f"{identity}.pulse"  # the name on disk: processes with other versions of holdfast look for it
