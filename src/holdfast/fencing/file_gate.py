"""The gate of one resource of a FileFence: flock on one file, the record in another.

The two are separate because the record is replaced by rename, while the lock must stay on one inode.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from typing import Final, NamedTuple

from holdfast.errors import EngineRefused
from holdfast.fencing import record
from holdfast.fencing.rule import Bearer
from holdfast.fencing.turns import Turns, Visitor

# A link in place of a file of ours was put there by somebody, to make us write elsewhere. Never follow one.
_FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC

# One for the process, not for each FileFence: two of them may share a directory, and flock by itself cannot tell
# "somebody else is inside" from "I am inside already", which would wait for ever.
_turns: Final = Turns()


class DirectoryId(NamedTuple):
    """Which directory it was, whatever its path leads to later."""

    device: int
    inode: int


def open_directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)


class FileGate:
    """Opens its own descriptors when it locks, and closes them when it unlocks."""

    __slots__ = ("_directory", "_directory_id", "_durable", "_lock", "_name", "_path", "_resource")

    slow = True

    def __init__(self, path: str, directory_id: DirectoryId, name: str, resource: str, durable: bool) -> None:
        self._path = path
        self._directory_id = directory_id
        self._name = name
        self._resource = resource
        self._durable = durable
        self._directory = self._lock = -1  # descriptors

    def try_lock(self, visitor: Visitor) -> bool:
        if not _turns.take((self._directory_id, self._name), visitor):
            return False
        locked = False
        try:
            self._open()
            locked = self._flock()
        finally:
            if not locked:
                self.unlock()
        return locked

    def unlock(self) -> None:
        if self._lock >= 0:
            # Said explicitly: the lock belongs to all copies of the descriptor, and a child that was forked a moment
            # ago by another thread, and has not yet come to exec, still has one.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._close()
        _turns.give((self._directory_id, self._name))

    def load(self) -> Bearer | None:
        try:
            descriptor = os.open(self._name + ".seen", os.O_RDONLY | _FLAGS, dir_fd=self._directory)
        except FileNotFoundError:
            return None
        try:
            content = os.read(descriptor, record.LONGEST + 1)
        finally:
            os.close(descriptor)
        try:
            return record.decode(self._resource, content)
        except ValueError as error:
            raise EngineRefused(
                f"the fence of {self._resource!r} cannot be read, so every token is refused: "
                f"{os.path.join(self._path, self._name + '.seen')!r} is damaged ({error}). Restore it; or delete it "
                "once no process is left that held the lock before"
            ) from error

    def store(self, seen: Bearer) -> None:
        # A ".new" left by a process that was killed here is overwritten: only the holder of the lock touches it.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS
        descriptor = os.open(self._name + ".new", flags, 0o600, dir_fd=self._directory)
        try:
            content = record.encode(self._resource, seen)
            if os.write(descriptor, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
            if self._durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(self._name + ".new", self._name + ".seen", src_dir_fd=self._directory, dst_dir_fd=self._directory)
        if self._durable:
            os.fsync(self._directory)

    def _open(self) -> None:
        with _opening:
            _open_gates.add(self)
            self._directory = open_directory(self._path)
            flags = os.O_RDWR | os.O_CREAT | _FLAGS
            status = os.fstat(self._directory)
            if (status.st_dev, status.st_ino) != self._directory_id:
                raise EngineRefused(
                    f"{self._path!r} is not the directory it was when this FileFence was made, so what the fence has "
                    "seen is gone. Put it back; or make a new FileFence once no earlier holder is left"
                )
            self._lock = os.open(self._name + ".lock", flags, 0o600, dir_fd=self._directory)

    def _flock(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours, named = os.fstat(self._lock), os.stat(self._name + ".lock", dir_fd=self._directory)
        except (BlockingIOError, FileNotFoundError):
            return False
        # If the file was removed after we opened it, our lock is on a ghost and somebody else has locked its successor.
        return os.path.samestat(ours, named)

    def _close(self) -> None:
        directory, lock, self._directory, self._lock = self._directory, self._lock, -1, -1
        for descriptor in (directory, lock):
            if descriptor >= 0:
                os.close(descriptor)
        _open_gates.discard(self)

    def after_fork_in_child(self) -> None:
        # Closed, not unlocked: unlocking would act on the parent's lock. A copy left open here would keep everybody
        # out for as long as the child lives, if the parent is killed inside its guard.
        self._close()


# Held while descriptors are opened, and while the process forks: else a child could have one that nobody knows of.
# Re-entrant, for a signal handler that forks.
_opening = threading.RLock()
_open_gates: set[FileGate] = set()


def _after_fork_in_child() -> None:
    global _opening
    _opening = threading.RLock()
    for gate in list(_open_gates):
        gate.after_fork_in_child()


os.register_at_fork(
    before=lambda: _opening.acquire(),
    after_in_parent=lambda: _opening.release(),
    after_in_child=_after_fork_in_child,
)
