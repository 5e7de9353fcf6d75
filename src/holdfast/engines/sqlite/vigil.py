"""Hearing of a process's death at once, without its pid: a connection that the kernel hangs up.

Each process listens on a stream socket and answers nobody. Who waits for a lock of that process connects and sleeps on
the connection too; when the listener goes, however it goes, the kernel resets it and the sleeper wakes. This is a hint:
whether the process is dead is for liveness.py to say, and where no connection can be made, polling does.
"""

from __future__ import annotations

import socket
from typing import Final

from holdfast.engines.sqlite.bell import bind_private
from holdfast.engines.sqlite.liveness import remove
from holdfast.engines.sqlite.paths import PrivateDirectory

_BACKLOG: Final = 1024  # the kernel caps it at somaxconn; whoever finds it full polls


class Pulse:
    """This process's listening socket: there as long as the process lives."""

    def __init__(self, directory: PrivateDirectory, identity: str) -> None:
        """OSError where there can be no socket: then nobody can keep vigil by this process, and waiters poll."""
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

    def hang_up(self) -> None:
        """End all vigils, for those that were given up stay in the backlog and would fill it. The others begin anew."""
        try:
            while True:
                self._socket.accept()[0].close()
        except OSError:
            pass  # nobody is left

    def close(self) -> None:
        self._socket.close()
        remove(self._directory.fileno, self._name)

    def disown(self) -> None:
        """In a forked child: close our copy, else the parent's death would go unheard."""
        self._socket.close()


class Vigil:
    """A connection to a process's pulse. OSError if there can be none: the process is gone, or too many are at it."""

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

    def is_over(self) -> bool:
        """Did the other side hang up?"""
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
    return f"{identity}.pulse"
