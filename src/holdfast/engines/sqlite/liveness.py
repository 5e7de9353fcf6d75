"""Is the process that wrote this row still there? Answered by the kernel, never by a pid.

Each process holds ``flock(LOCK_EX)`` on a file with a fresh random name, which is the process's identity in every row
it writes. The kernel drops the lock when the last descriptor goes: however the process ends, frozen it keeps it. A name
is never used again, so *death is permanent*: "this process is dead", once true, can be acted upon later.

A pid would not do: it is reused, and means something else in another pid namespace.
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from typing import Final

_IDENTITY: Final = re.compile(r"[0-9a-f]{32}")
_OPEN: Final = os.O_NOFOLLOW | os.O_CLOEXEC


class Liveness:
    """This process's own file, locked until :meth:`close` or death."""

    def __init__(self, directory: int) -> None:
        self._directory = directory
        while True:
            self.identity = uuid.uuid4().hex
            self.fileno = os.open(self.identity, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN, 0o600, dir_fd=directory)
            try:
                if self._lock():
                    return
            except BaseException:
                self.disown()
                raise
            self.disown()

    def _lock(self) -> bool:
        """False if a sweep met the file in the instant before it was locked, and took it for a dead one's."""
        try:
            fcntl.flock(self.fileno, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = os.stat(self.identity, dir_fd=self._directory, follow_symlinks=False)
        except (BlockingIOError, FileNotFoundError):
            return False
        return os.path.samestat(there, os.fstat(self.fileno))

    def close(self, *, unlink: bool) -> None:
        """End this identity. With ``unlink=False`` the file stays as the proof of death, for rows that name it."""
        if unlink:
            remove(self._directory, self.identity)
        self.disown()

    def disown(self) -> None:
        """Close the descriptor only. In a forked child: the lock is the parent's and stays (never LOCK_UN here), but
        a child that kept the descriptor would keep a dead parent's locks alive."""
        fileno, self.fileno = self.fileno, -1
        if fileno >= 0:
            os.close(fileno)


def is_dead(directory: int, identity: str) -> bool:
    """True only if the process has certainly ended. No file proves nothing: somebody may have tidied up."""
    if not _IDENTITY.fullmatch(identity):
        return False
    try:
        fileno = os.open(identity, os.O_RDONLY | _OPEN, dir_fd=directory)
    except OSError:
        return False
    try:
        # Shared: two processes that test at once must not take each other for the living owner.
        fcntl.flock(fileno, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fileno)
    return True


def identities(directory: int) -> list[str]:
    """Every process that has left a file, dead or alive."""
    return [name for name in os.listdir(directory) if _IDENTITY.fullmatch(name)]


def bury(directory: int, identity: str) -> None:
    """Remove what a dead process left in the directory: its sockets, and last the proof of its death."""
    for name in os.listdir(directory):
        if name.startswith(f"{identity}."):
            remove(directory, name)
    remove(directory, identity)


def remove(directory: int, name: str) -> None:
    """Delete a file of the private directory. Best effort: what stays is swept with its dead process."""
    try:
        os.unlink(name, dir_fd=directory)
    except OSError:
        pass
