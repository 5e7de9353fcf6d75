"""The location of the lock file, and the checks that only its owner can have put it there."""

from __future__ import annotations

import os
import pwd
import socket
import stat
from typing import Final

from holdfast.engines.sqlite import faults
from holdfast.engines.sqlite.filesystem import refuse_shared
from holdfast.errors import EngineRefused

_O_PATH: Final[int | None] = getattr(os, "O_PATH", None)  # Linux
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
# SQLite refuses longer paths: 512 bytes with "-journal". A longer name leaves no room for ".damaged" in 255 bytes.
_LONGEST_PATH: Final = 504
_LONGEST_NAME: Final = 247
# sun_path holds 108 bytes on Linux and 104 on the BSDs, with the final NUL.
_LONGEST_ADDRESS: Final = 103


def default_path() -> str:
    """The lock file of this user: under the home of the passwd entry of the effective uid.

    Never from $HOME, XDG_* or TMPDIR: two processes of one user with different environments must use the same file.
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
    """``<lock file>.d``, opened: the directory of liveness files and sockets."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.fileno = _open_private(path)
        try:
            self.sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)  #: sends wake-ups
        except BaseException:
            os.close(self.fileno)
            raise
        self.sender.setblocking(False)

    def address(self, name: str) -> str:
        """The path of a socket in this directory, short enough for the kernel where /proc is mounted."""
        plain = os.path.join(self.path, name)
        if len(os.fsencode(plain)) <= _LONGEST_ADDRESS:
            return plain
        return f"/proc/self/fd/{self.fileno}/{name}"

    def in_place(self) -> bool:
        """Whether its path still leads to it. If not, other processes create another one."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.fileno))
        except OSError:
            return False

    def close(self) -> None:
        fileno, self.fileno = self.fileno, -1
        if fileno >= 0:
            os.close(fileno)
        self.sender.close()


def secure(path: str) -> PrivateDirectory:
    """Create and check the two directories of the lock file, and check the file if it exists; returns the private one.

    The directory of the file must belong to this user and be writable by this user only: then no other user can place a
    link, a file or a socket there, now or later. ``path + ".d"`` contains liveness files and sockets.
    """
    _refuse_long(path)
    directory = os.path.dirname(path)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        parent = _open_private(directory)
        try:
            refuse_shared(directory)
            refuse_unfit_file(path, parent)
            try:
                os.mkdir(path + ".d", 0o700)
            except FileExistsError:
                pass
            private = PrivateDirectory(path + ".d")
            try:
                _refuse_mount_point(path + ".d", private.fileno, parent)
            except BaseException:
                private.close()
                raise
            return private
        finally:
            os.close(parent)
    except OSError as error:
        raise faults.of_system(error, path) from error


def _refuse_long(path: str) -> None:
    for length, limit, what in (
        (len(os.fsencode(path)), _LONGEST_PATH, "path"),
        (len(os.fsencode(os.path.basename(path))), _LONGEST_NAME, "file name"),
    ):
        if length > limit:
            raise EngineRefused(f"lock file {path}: its {what} has {length} bytes; at most {limit} are possible")


def _open_private(directory: str) -> int:
    fileno = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _refuse_unless_ours(os.fstat(fileno), directory)
    except BaseException:
        os.close(fileno)
        raise
    return fileno


def create_file(path: str) -> None:
    """Create an empty lock file. FileExistsError if it exists: an existing file is never opened here, because closing
    any descriptor of a file drops all POSIX locks of this process on it, including SQLite's."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def refuse_unfit(path: str) -> None:
    """Refuse an existing lock file or its directory as ``secure`` does. Creates nothing."""
    parent = _open_private(os.path.dirname(path))
    try:
        refuse_unfit_file(path, parent)
    finally:
        os.close(parent)


def refuse_unfit_file(path: str, parent: int) -> None:
    """Refuse a lock file that another user may have created, or that has a second name with another log beside it."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise EngineRefused(f"lock file {path}: it is not a regular file (a symbolic link is not followed)")
    if found.st_nlink > 1:
        # SQLite names its log after the path: two names for one file mean two logs.
        raise EngineRefused(f"lock file {path}: it has {found.st_nlink} names (hard links); it must have one")
    _refuse_unless_ours(found, path)
    if _O_PATH is not None:
        file = os.open(path, _O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)  # closing this kind drops no POSIX locks
        try:
            _refuse_mount_point(path, file, parent)
        finally:
            os.close(file)


def _refuse_mount_point(path: str, file: int, parent: int) -> None:
    """A file or directory that is mounted alone (``docker run -v /srv/locks.db:/data/locks.db``) has another log, or
    another private directory, outside the mount."""
    mounts = {_mount(file), _mount(parent)}
    if len(mounts) > 1 and None not in mounts:
        raise EngineRefused(
            f"lock file {path}: it is a mount point, so its log would not be shared with users of the original; "
            "mount its whole directory instead"
        )


def _mount(file: int) -> str | None:
    """The mount that an open file is on; None where the system does not provide it."""
    try:
        with open(f"/proc/self/fdinfo/{file}", encoding="ascii") as facts:
            return next((line for line in facts if line.startswith("mnt_id:")), None)
    except FileNotFoundError:
        return None


def _refuse_unless_ours(found: os.stat_result, path: str) -> None:
    if found.st_uid != os.geteuid():
        raise EngineRefused(f"{path} belongs to user id {found.st_uid}, not to us ({os.geteuid()}); locks are per user")
    if found.st_mode & _OTHERS_WRITE:
        raise EngineRefused(
            f"{path} can be written by others (mode {found.st_mode & 0o7777:o}), who could plant files there; "
            "put the lock file into a directory of your own, or chmod go-w this one"
        )
