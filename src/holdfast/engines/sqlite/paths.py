"""Where the lock file is, and that nobody but its owner can have put it there."""

from __future__ import annotations

import os
import pwd
import stat
from typing import Final

from holdfast.engines.sqlite import faults
from holdfast.engines.sqlite.filesystem import refuse_shared
from holdfast.errors import EngineRefused

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
# sun_path holds 108 bytes on Linux and 104 on the BSDs, with the final NUL.
_LONGEST_ADDRESS: Final = 103


def default_path() -> str:
    """The lock file of this user: under the home of the passwd entry of the effective uid.

    Never from $HOME, XDG_* or TMPDIR: two processes of one user with different environments must meet in one file.
    """
    uid = os.geteuid()
    try:
        home = pwd.getpwuid(uid).pw_dir
    except KeyError:
        home = ""
    if not os.path.isabs(home):
        raise EngineRefused(
            f"user id {uid} has no home directory in passwd; name the lock file: sqlite:///path/to/file"
        )
    return os.path.join(home, ".local", "state", "holdfast", "locks.db")


def resolve(path: str) -> str:
    """``path`` with every symbolic link above the file resolved: one spelling for one file."""
    directory, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(directory), name)


class PrivateDirectory:
    """``<lock file>.d``, open: where liveness files and sockets are."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.fileno = _open_private(path)

    def address(self, name: str) -> str:
        """The path of a socket in here, short enough for the kernel wherever /proc is mounted."""
        plain = os.path.join(self.path, name)
        if len(os.fsencode(plain)) <= _LONGEST_ADDRESS:
            return plain
        return f"/proc/self/fd/{self.fileno}/{name}"

    def close(self) -> None:
        fileno, self.fileno = self.fileno, -1
        if fileno >= 0:
            os.close(fileno)


def secure(path: str) -> PrivateDirectory:
    """Make the lock file and its two directories ready, or raise; returns the private one.

    The directory of the file must belong to us and be writable by us alone: then no other user can have planted a
    link, a file or a socket there, now or later. ``path + ".d"`` holds liveness files and sockets.
    """
    directory = os.path.dirname(path)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        os.close(_open_private(directory))
        refuse_shared(directory)
        secure_file(path)
        try:
            os.mkdir(path + ".d", 0o700)
        except FileExistsError:
            pass
        return PrivateDirectory(path + ".d")
    except OSError as error:
        raise faults.of_system(error, path) from error


def _open_private(directory: str) -> int:
    fileno = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _refuse_unless_ours(os.fstat(fileno), directory)
    except BaseException:
        os.close(fileno)
        raise
    return fileno


def secure_file(path: str) -> None:
    """Create the lock file if there is none, and refuse one that somebody else may have made."""
    try:
        # Only a file that was not there is ever opened by us: closing *any* descriptor of a file drops all POSIX
        # locks of this process on it, those of SQLite included.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise EngineRefused(f"lock file {path}: it is not a regular file (a symbolic link is not followed)")
    if found.st_nlink != 1:
        # SQLite names its log after the path: two names for one file would be two logs.
        raise EngineRefused(f"lock file {path}: it has {found.st_nlink} names (hard links); it must have one")
    _refuse_unless_ours(found, path)


def _refuse_unless_ours(found: os.stat_result, path: str) -> None:
    if found.st_uid != os.geteuid():
        raise EngineRefused(f"{path} belongs to user id {found.st_uid}, not to us ({os.geteuid()}); locks are per user")
    if found.st_mode & _OTHERS_WRITE:
        raise EngineRefused(
            f"{path} can be written by others (mode {found.st_mode & 0o7777:o}), who could plant files there; "
            "put the lock file into a directory of your own, or chmod go-w this one"
        )
