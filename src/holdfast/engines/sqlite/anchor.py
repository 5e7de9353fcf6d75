"""The database, its log (``-wal``) and its index (``-shm``): kept in place, and compared with what the path leads to.

Two things may displace them while they are open. An operator removes or replaces one: then other processes lock in
other files, and every lease in these is worthless. And SQLite itself: its locks are POSIX locks, which *any* close of
the file in this process drops (a backup that reads the home directory is enough); the next process that ends then
takes itself for the last one, and deletes log and index under us.

The second is prevented: we hold locks of our own on the same bytes, of the kind that belongs to one open file and not
to the process. The first is noticed: by the next process that opens the files (opening.py), and by
:meth:`Anchor.in_place`.
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
# Elsewhere struct flock looks different, and displacement is only noticed.
_LINUX: Final = sys.platform.startswith("linux")


class Anchor:
    """Made right after SQLite has opened the files, by the sole opener; closed after SQLite has closed them.

    The order matters: to close a descriptor of ours drops the POSIX locks of a connection that is still open.
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
        """Does every path still lead to what was opened?"""
        try:
            return tuple(_identity(name) for name in self._paths) == self._identities
        except OSError:
            return False

    def inodes(self) -> tuple[int, ...]:
        """Of database, log and index."""
        return tuple(inode for _, inode in self._identities[:3])

    def log_size(self) -> int:
        """Of what the path leads to, in bytes."""
        try:
            return os.stat(self._paths[1]).st_size
        except OSError:
            return 0

    def let_go(self) -> None:
        """Before SQLite closes files that are in place: the last process to close them may tidy up."""
        for descriptor, where in zip(self._descriptors, (_SHARED_RANGE, _DEAD_MAN_SWITCH), strict=False):
            _lock(descriptor, fcntl.F_UNLCK, where)

    def close(self) -> None:
        """Close our descriptors only. In a forked child too: the locks stay the parent's."""
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)


def is_open(path: str) -> bool:
    """Does any other process have the database open? Only asked while this one has not."""
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
    """What ``path`` leads to. While it is open somewhere, no other file can have the same."""
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
        pass  # a file system without such locks: displacement is noticed all the same
