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
from holdfast.fencing.descriptors import Descriptors
from holdfast.fencing.rule import Bearer
from holdfast.fencing.turns import GuardEntry, Turns

# Never follow a symbolic link: it may have been put there to redirect our writes.
_FLAGS: Final = os.O_NOFOLLOW
DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | _FLAGS

# One for the process, not for each FileFence: two of them may share a directory, and flock alone cannot tell "another
# process is inside" from "this thread is inside already", which would be a deadlock.
_turns: Final = Turns()


class DirectoryId(NamedTuple):
    """Identifies a directory, even if its path leads to another one later."""

    device: int
    inode: int


class FileGate:
    """Opens its own descriptors when it locks, and closes them when it unlocks."""

    __slots__ = ("_directory_id", "_durable", "_files", "_name", "_path", "_resource")

    slow = True

    def __init__(self, path: str, directory_id: DirectoryId, name: str, resource: str, durable: bool) -> None:
        self._path = path
        self._directory_id = directory_id
        self._name = name
        self._resource = resource
        self._durable = durable
        self._files = Descriptors()  # the directory, the locked file, and a file that is being read or written

    def try_lock(self, entry: GuardEntry) -> bool:
        if not _turns.take((self._directory_id, self._name), entry):
            return False
        locked = False
        try:
            self._open()
            locked = self._flock()
        finally:
            if not locked:
                self.unlock(entry)
        return locked

    def unlock(self, entry: GuardEntry) -> None:
        if _turns.has((self._directory_id, self._name), entry):
            if len(self._files) > 1:
                # Explicitly: all copies of the descriptor share the lock, and a child that another thread has just
                # forked, and that has not yet reached exec, has a copy.
                fcntl.flock(self._files[1], fcntl.LOCK_UN)
            self._close()
            _turns.give((self._directory_id, self._name), entry)

    def load(self) -> Bearer | None:
        try:
            descriptor = self._files.open(self._name + ".seen", os.O_RDONLY | _FLAGS, dir_fd=self._files[0])
        except FileNotFoundError:
            return None
        content = os.read(descriptor, record.LONGEST + 1)
        self._files.close_last()
        try:
            return record.decode(self._resource, content)
        except ValueError as error:
            raise EngineRefused(
                f"the fence of {self._resource!r} cannot be read, so every token is refused: "
                f"{os.path.join(self._path, self._name + '.seen')!r} is damaged ({error}). Restore it; or delete it "
                "once no process is left that held the lock before"
            ) from error

    def store(self, seen: Bearer) -> None:
        # A ".new" file of a process that was killed here is overwritten: only the holder of the flock uses it.
        directory, flags = self._files[0], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS
        descriptor = self._files.open(self._name + ".new", flags, dir_fd=directory)
        content = record.encode(self._resource, seen)
        if os.write(descriptor, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        if self._durable:
            os.fsync(descriptor)
        self._files.close_last()
        os.rename(self._name + ".new", self._name + ".seen", src_dir_fd=directory, dst_dir_fd=directory)
        if self._durable:
            os.fsync(directory)

    def _open(self) -> None:
        with _opening:
            _open_gates.add(self)
            directory = self._files.open(self._path, DIRECTORY)
            status = os.fstat(directory)
            if (status.st_dev, status.st_ino) != self._directory_id:
                raise EngineRefused(
                    f"{self._path!r} is not the directory it was when this FileFence was made, so what the fence has "
                    "seen is gone. Put it back; or make a new FileFence once no earlier holder is left"
                )
            self._files.open(self._name + ".lock", os.O_RDWR | os.O_CREAT | _FLAGS, dir_fd=directory)

    def _flock(self) -> bool:
        try:
            fcntl.flock(self._files[1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours, named = os.fstat(self._files[1]), os.stat(self._name + ".lock", dir_fd=self._files[0])
        except (BlockingIOError, FileNotFoundError):
            return False
        # If the file was removed after it was opened, another process may have locked a new file of the same name.
        return os.path.samestat(ours, named)

    def _close(self) -> None:
        self._files.close()
        _open_gates.discard(self)

    def after_fork_in_child(self) -> None:
        # Closed, not unlocked: unlocking would release the parent's lock. A copy left open here would keep all other
        # processes out while the child lives, if the parent is killed inside its guard.
        self._close()


# Held while descriptors are opened, and while the process forks: otherwise a child could inherit a descriptor that it
# does not close. Re-entrant, for a signal handler that forks.
_opening: Final = threading.RLock()
_open_gates: Final[set[FileGate]] = set()


def _after_fork_in_child() -> None:
    for gate in list(_open_gates):
        gate.after_fork_in_child()


# The RLock's own methods are registered, without Python code around them: a signal that interrupted such code would
# leave the lock locked for ever. The forking thread owns it, and is the thread that exists in the child.
os.register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_opening.release)
os.register_at_fork(after_in_child=_after_fork_in_child)
