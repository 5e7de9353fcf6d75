"""User data in a lock file: registers whose content must survive a power cut, unlike locks, which end with it.

The commit of such a register waits until the log is on the disk (``synchronous = full``). One sync covers everything
that any process has written to the log before. But a checkpoint moves content out of the log, and the log is then
overwritten: without a sync of the database in between (``synchronous = normal``), a power cut after that would lose
confirmed content. So *every* process that uses a file with user data syncs its checkpoints.

A file in the private directory marks a lock file with user data: it is readable when the lock file is damaged. The same
is noted in the lock file, from where a mark that was removed with its directory is restored. An earlier version of
holdfast does not know the mark: while one of its processes uses the file, a power cut may lose confirmed content.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import Final

from holdfast.engines.sqlite import liveness
from holdfast.engines.sqlite.faults import Contended, Displaced
from holdfast.engines.sqlite.paths import PrivateDirectory

#: The key of the note in the lock file.
NOTE: Final = "durable"
_MARK: Final = "durable"
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def is_marked(directory: PrivateDirectory) -> bool:
    """Whether the lock file contains user data, or soon will."""
    if directory.fileno < 0:  # a signal handler has forked meanwhile, and this is the child
        raise Displaced(directory.path)
    try:
        os.stat(_MARK, dir_fd=directory.fileno, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def mark(directory: PrivateDirectory) -> None:
    """Before the first user data is written. Contended while another process is in a checkpoint without a sync."""
    with _checkpoints(directory, fcntl.LOCK_EX):
        for name in (_MARK, "opening"):  # the record of the files that belong together must survive the power cut, too
            created = os.open(name, _CREATE, 0o600, dir_fd=directory.fileno)
            try:
                os.fsync(created)
            finally:
                os.close(created)
        os.fsync(directory.fileno)
        parent = os.open(os.path.dirname(directory.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)


def unmark(directory: PrivateDirectory) -> None:
    """The lock file is a new one."""
    liveness.remove(directory.fileno, _MARK)


@contextlib.contextmanager
def checkpointing(directory: PrivateDirectory) -> Iterator[bool]:
    """Yields whether the file is marked, which does not change inside the block: a process that was paused between its
    look at the mark and its checkpoint would move another process's first user data without a sync."""
    with _checkpoints(directory, fcntl.LOCK_SH):
        yield is_marked(directory)


@contextlib.contextmanager
def _checkpoints(directory: PrivateDirectory, kind: int) -> Iterator[None]:
    # The lock is on the private directory: it needs a descriptor of its own, since a lock belongs to one.
    fileno = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory.fileno)
    try:
        try:
            fcntl.flock(fileno, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Contended from None
        yield
    finally:
        os.close(fileno)
