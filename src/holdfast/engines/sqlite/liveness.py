"""Whether the process that wrote a row is still alive: the kernel decides, never a pid.

Each process holds ``flock(LOCK_EX)`` on a file with a fresh random name, which is the process's identity in every row
it writes. The kernel drops the lock when the last descriptor is closed, however the process ends; a frozen process
keeps it. An identity is never reused, so *death is permanent*: a process that was found dead can be acted upon later.

A pid is not sufficient: it is reused, and it means something else in another pid namespace.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import uuid
from collections.abc import Iterator
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
        """False if housekeeping found the file before it was locked, and took it for a dead process's."""
        try:
            fcntl.flock(self.fileno, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = os.stat(self.identity, dir_fd=self._directory, follow_symlinks=False)
        except (BlockingIOError, FileNotFoundError):
            return False
        return os.path.samestat(there, os.fstat(self.fileno))

    def keep_until(self, epoch: float) -> None:
        """Rows of this process are valid until ``epoch``: if it dies, its file is kept as proof for that long."""
        os.utime(self.fileno, (epoch, epoch))

    def close(self, *, unlink: bool) -> None:
        """End this identity. With ``unlink=False`` the file stays as the proof of death, for rows that name it."""
        if unlink:
            remove(self._directory, self.identity)
        self.disown()

    def disown(self) -> None:
        """Close the descriptor only. In a forked child the lock is the parent's and stays (never LOCK_UN here), but a
        child that kept the descriptor open would keep a dead parent's locks alive."""
        fileno, self.fileno = self.fileno, -1
        if fileno >= 0:
            os.close(fileno)


def is_dead(directory: int, identity: str) -> bool:
    """True only if the process has certainly ended. A missing file proves nothing: it may have been removed."""
    with proof(directory, identity) as found:
        return found is not None


@contextlib.contextmanager
def proof(directory: int, identity: str) -> Iterator[os.stat_result | None]:
    """The file of a process that has certainly ended, else None. The file stays locked inside the block.

    A starting process that has created its file but not locked it yet looks dead. While we hold the lock, it cannot get
    it and chooses another identity; without the lock, removing its file and rows would hit a live process.
    """
    if not is_identity(identity):
        yield None
        return
    try:
        fileno = os.open(identity, os.O_RDONLY | _OPEN, dir_fd=directory)
    except OSError:
        yield None
        return
    try:
        try:
            # Shared: two processes that test at the same time must not mistake each other for the live owner.
            fcntl.flock(fileno, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            yield None
            return
        yield os.fstat(fileno)
    finally:
        os.close(fileno)


def is_identity(name: str) -> bool:
    return _IDENTITY.fullmatch(name) is not None


def identities(directory: int) -> list[str]:
    """Every process that has left a file, dead or alive."""
    return [name for name in os.listdir(directory) if is_identity(name)]


def remove(directory: int, name: str) -> None:
    """Delete a file of the private directory. Best effort: housekeeping removes what stays once its process is dead."""
    try:
        os.unlink(name, dir_fd=directory)
    except OSError:
        pass
