"""Keeps the database, its log (``-wal``) and its index (``-shm``) in place, and detects when they were displaced.

They can be displaced in two ways while they are open. An operator removes or replaces one: other processes then lock in
other files, and every lease in the old ones is void. Or SQLite removes them: its locks are POSIX locks, which *any*
close of the file in this process drops (a backup that reads the home directory is enough). The next process that ends
then sees no other user, and deletes the log and the index that this process still has open.

The second is prevented: the anchor holds locks on the same bytes that belong to its open file, not to the process. The
first is detected by the next process that opens the files (opening.py), and by :meth:`Anchor.in_place`.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from typing import Final

from holdfast.engines.sqlite.paths import PrivateDirectory

# SQLite's lock bytes (os_unix.c, "wal-index format"). Deleting the log takes a write lock on all of the shared range;
# truncating the index takes one on the byte of its "dead man's switch".
_SHARED_RANGE: Final = (0x40000000 + 2, 510)
_DEAD_MAN_SWITCH: Final = (128, 1)
# On other systems struct flock has another layout, and displacement is detected but not prevented.
_LINUX: Final = sys.platform.startswith("linux")


class Anchor:
    """Created right after SQLite has opened the files, by the only opener; closed after SQLite has closed them.

    The order matters: closing one of the anchor's descriptors drops the POSIX locks of a connection that is still open.
    """

    def __init__(self, path: str, directory: PrivateDirectory) -> None:
        self._paths = (path, path + "-wal", path + "-shm", directory.path)
        self._descriptors: list[int] = []
        try:
            self._pin(path, _SHARED_RANGE)
            self._pin(path + "-shm", _DEAD_MAN_SWITCH)
            self._identities = tuple(_identity(name) for name in self._paths)
        except BaseException:
            self.close()
            raise

    def _pin(self, path: str, where: tuple[int, int]) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._descriptors.append(descriptor)
        _lock(descriptor, fcntl.F_RDLCK, where)

    def in_place(self) -> bool:
        """Whether every path still leads to the file that was opened."""
        try:
            return tuple(_identity(name) for name in self._paths) == self._identities
        except OSError:
            return False

    def inodes(self) -> tuple[int, ...]:
        """The inodes of the database, the log and the index."""
        return tuple(inode for _, inode in self._identities[:3])

    def log_size(self) -> int:
        """The size of the log that the path leads to, in bytes."""
        try:
            return os.stat(self._paths[1]).st_size
        except OSError:
            return 0

    def let_go(self) -> None:
        """Unlock before SQLite closes files that are in place, so that the last process can remove log and index."""
        for descriptor, where in zip(self._descriptors, (_SHARED_RANGE, _DEAD_MAN_SWITCH), strict=False):
            if descriptor >= 0:
                _lock(descriptor, fcntl.F_UNLCK, where)

    def close(self) -> None:
        """Close the descriptors only, each of them once. Also in a forked child: the locks remain the parent's."""
        for place in range(len(self._descriptors)):
            descriptor, self._descriptors[place] = self._descriptors[place], -1
            if descriptor >= 0:
                os.close(descriptor)


def is_open(path: str) -> bool:
    """Whether another process has the database open. Only valid while this process does not have it open."""
    if not _LINUX:
        return False
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, _flock(fcntl.F_WRLCK, _SHARED_RANGE))
        return bool(struct.unpack_from("h", answer)[0] != fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _identity(path: str) -> tuple[int, int]:
    """The identity of the file behind ``path``. While the file is open somewhere, no other file can have the same."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _flock(kind: int, where: tuple[int, int]) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, *where, 0)


def _lock(descriptor: int, kind: int, where: tuple[int, int]) -> None:
    if not _LINUX:
        return
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(kind, where))
    except OSError:
        pass  # a file system without such locks: displacement is still detected
