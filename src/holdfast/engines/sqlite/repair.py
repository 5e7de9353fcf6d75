"""After a power cut: a file that was never fsynced may be torn. Set it aside, but only if nobody can be using it."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sqlite3
from collections.abc import Iterator
from typing import Final

from holdfast.engines.sqlite import liveness, schema, statements
from holdfast.engines.sqlite.faults import Contended, primary_code
from holdfast.engines.sqlite.kernel import boot_id
from holdfast.engines.sqlite.paths import PrivateDirectory, secure_file

_log: Final = logging.getLogger("holdfast")
_CHECKED: Final = "boot"


def open_sound(path: str, directory: PrivateDirectory, identity: str) -> sqlite3.Connection:
    """Open the file; the first opening after a boot checks it. A torn one is replaced by an empty one, if that is safe.

    Every lease in a file from before a boot is over or is waited out, and tokens go on from the clock: an empty file
    serves as well. While another live process may have the torn one open, the error is raised instead.
    """
    with _sole_opener(directory):
        try:
            return _open_checked(path)
        except sqlite3.DatabaseError as error:
            if primary_code(error) != sqlite3.SQLITE_CORRUPT or not _alone(directory, identity):
                raise
            aside = f"{path}.damaged"
            _log.warning("lock file %s was damaged (power cut?); it is now %s, and a new one is used", path, aside)
            os.replace(path, aside)
            for suffix in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path + suffix)
            secure_file(path)
            return _open_checked(path)


def _open_checked(path: str) -> sqlite3.Connection:
    connection = schema.open_connection(path)
    try:
        if schema.recall(connection, _CHECKED) != boot_id():
            if not schema.is_sound(connection):
                damaged = sqlite3.DatabaseError("the file does not pass its check")
                damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                raise damaged
            connection.execute(statements.FORGET_QUEUES, (boot_id(),))
            connection.execute(statements.REMEMBER, (_CHECKED, boot_id()))
    except BaseException:
        connection.close()
        raise
    return connection


def _alone(directory: PrivateDirectory, identity: str) -> bool:
    """Is every other process that ever opened the file dead? Nobody can come in meanwhile: see the sole opener."""
    others = set(liveness.identities(directory.fileno)) - {identity}
    return all(liveness.is_dead(directory.fileno, other) for other in others)


@contextlib.contextmanager
def _sole_opener(directory: PrivateDirectory) -> Iterator[None]:
    """Openings one after another, among all processes: creating and replacing the file are not one statement."""
    fileno = os.open("opening", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory.fileno)
    try:
        try:
            fcntl.flock(fileno, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Contended from None
        yield
    finally:
        os.close(fileno)
