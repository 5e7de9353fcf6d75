"""Opening the file, one process at a time: creating, replacing and repairing take more than one statement.

The opening lock is ``flock`` on ``<lock file>.d/opening``. That file also records which database, log and index belong
together (their inodes), as the last opener left them. SQLite would read a new database through the log of a removed one
beside it, so a log and an index that belong to another file are removed before SQLite opens them. Processes that still
have them open are displaced. They detect it at their next write: the opener removes their liveness files before any
lock can be granted in the new files.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sqlite3
from collections.abc import Collection, Iterator
from typing import Final

from holdfast.engines.sqlite import durability, liveness, register_statements, schema, statements
from holdfast.engines.sqlite.anchor import Anchor, is_open
from holdfast.engines.sqlite.faults import Contended, Displaced, damaged_user_data, primary_code
from holdfast.engines.sqlite.paths import PrivateDirectory, create_file
from holdfast.engines.sqlite.wakeup_socket import is_for_watchdog, send_wakeup

_log: Final = logging.getLogger("holdfast.sqlite")
_CHECKED: Final = "boot"
_NONE: Final = 0  # stands for the inode of a missing file
#: A larger file (about 25,000 names) is not checked when it is opened: the time to open must not grow with it, and
#: damage is detected when a statement meets it. In pages of 1 KiB; SQLite checks about 400 of them in a millisecond.
_CHECKED_PAGES: Final = 8192
#: A message that a watchdog cannot decode as a name: it then verifies everything that it holds.
ABOUT_ALL: Final = b"\xff"

Opened = tuple[sqlite3.Connection, Anchor]


def open_files(
    path: str, directory: PrivateDirectory, boot: str, identity: str, former: Collection[str], *, suspect: bool
) -> Opened:
    """Open the lock file; create it if it is missing.

    A damaged file is set aside and replaced by an empty one if no other process (than ``identity``, or the ``former``
    identities of this one) can have it open: every lease in it has ended, and tokens continue from the clock. Otherwise
    the error is raised. A file with user data is never replaced (durability.py). The file is checked at the first
    opening after a boot (it is never synced, so a power cut may damage it), after a displacement, and if it is
    ``suspect``.
    """
    with _sole_opener(directory) as record:
        try:
            opened, displaced = _open_recorded(path, directory, boot, identity, former, record, suspect)
        except (FileNotFoundError, FileExistsError) as error:
            raise Displaced(path) from error  # removed or replaced during the opening: the caller repeats it
    if displaced:
        notify_all(directory)
    return opened


def _open_recorded(
    path: str,
    directory: PrivateDirectory,
    boot: str,
    identity: str,
    former: Collection[str],
    record: int,
    suspect: bool,
) -> tuple[Opened, bool]:
    belonging = _recorded(record)
    displaced = _remove_foreign_files(path, belonging, directory, identity)
    try:
        opened = _open_checked(path, directory, boot, thorough=suspect, check=displaced or suspect)
    except sqlite3.DatabaseError as error:
        known = os.stat(path).st_ino == belonging[0]
        if _is_damage(error, known) and durability.is_marked(directory):
            raise damaged_user_data(path) from error
        if not _is_damage(error, known) or not (displaced or _is_only_process(directory, {identity, *former})):
            raise
        _end_others(directory, identity)
        _set_aside(path)
        displaced = True
        opened = _open_checked(path, directory, boot, thorough=False, check=False)
    try:
        _write_record(record, opened[1].inodes(), durable=durability.is_marked(directory))
    except BaseException:
        close(*opened)
        raise
    return opened, displaced


def open_again(path: str, directory: PrivateDirectory, anchor: Anchor) -> sqlite3.Connection:
    """A connection to the files that ``anchor`` still holds; the previous one was closed for a fork."""
    with _sole_opener(directory):
        if not anchor.in_place():
            raise Displaced(path)
        connection = schema.open_connection(path)
        if not anchor.in_place():  # replaced between the check and the opening
            connection.close()
            raise Displaced(path)
        _sync_checkpoints(connection, directory)
        return connection


def _sync_checkpoints(connection: sqlite3.Connection, directory: PrivateDirectory) -> None:
    if durability.is_marked(directory):
        schema.set_sync(connection, schema.CHECKPOINTS)


def close(connection: sqlite3.Connection, anchor: Anchor) -> None:
    """Close files without removing log and index: SQLite cannot remove them while the anchor holds its locks."""
    connection.close()
    anchor.close()


def notify_all(directory: PrivateDirectory) -> None:
    """Make every watchdog verify its leases now, since their files were displaced. Best effort."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory.fileno):
            if is_for_watchdog(name):
                send_wakeup(directory, name, ABOUT_ALL)


def _remove_foreign_files(path: str, belonging: tuple[int, ...], directory: PrivateDirectory, identity: str) -> bool:
    """Remove a log and an index that do not belong to the database; create the database if it is missing. True if this
    displaces other processes, or if they were displaced before."""
    found = _inodes(path)
    empty = found[0] != _NONE and os.path.getsize(path) == 0
    if found[0] != _NONE and not empty:
        if _NONE == found[1] == found[2]:
            # The last process to close it removed log and index. If a process has it open, an operator removed them.
            intact = belonging[0] in (_NONE, found[0]) and not is_open(path)
        else:
            # As the last opener left it; or the record is gone with its directory, and SQLite joins the processes that
            # have the files open.
            # After a power cut the index may be missing: SQLite makes a new one from the log.
            intact = (
                found == belonging
                or (belonging[0] == _NONE and _NONE not in found)
                or (found[:2] == belonging[:2] and not is_open(path))
            )
        if intact:
            return False
    if durability.is_marked(directory):
        if empty:
            raise damaged_user_data(path)
        _keep_log(path)
    _end_others(directory, identity)
    for suffix in ("-shm", "-wal"):
        _remove(path + suffix)
    if found[0] == _NONE:
        _forget_user_data(path, directory)
    if empty:
        _remove(path)  # truncated in place: processes that have it open must not write into the new one
    if empty or found[0] == _NONE:
        create_file(path)
    return True


def _keep_log(path: str) -> None:
    """A log that does not belong to the database may contain the last state of user data."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.getsize(path + "-wal"):
            os.replace(path + "-wal", path + "-wal.displaced")
            _log.warning(
                "lock file %s: the log beside it belongs to another file; it is now %s-wal.displaced", path, path
            )


def _forget_user_data(path: str, directory: PrivateDirectory) -> None:
    if durability.is_marked(directory):
        _log.warning("lock file %s was removed, with the state of monitors or other user data; a new one is used", path)
        durability.unmark(directory)


def _end_others(directory: PrivateDirectory, identity: str) -> None:
    """Void everything that other processes wrote. Live ones detect that their liveness file is gone."""
    for other in liveness.identities(directory.fileno):
        if other != identity:
            liveness.remove(directory.fileno, other)


def _open_checked(path: str, directory: PrivateDirectory, boot: str, *, thorough: bool, check: bool) -> Opened:
    expected = _inodes(path)
    connection = schema.open_connection(path)
    try:
        if any(there not in (_NONE, now) for there, now in zip(expected, _inodes(path), strict=True)):
            raise FileNotFoundError(path)  # replaced between the check and the opening
        if schema.recall(connection, durability.NOTE) and not durability.is_marked(directory):
            durability.mark(directory)  # removed with the private directory
        _sync_checkpoints(connection, directory)
        rebooted = schema.recall(connection, _CHECKED) != boot
        if (check or rebooted) and not schema.is_sound(connection, None if thorough else _CHECKED_PAGES):
            damaged = sqlite3.DatabaseError("the file does not pass its check")
            damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise damaged
        if rebooted:
            connection.execute(statements.FORGET_QUEUES, (boot,))
            connection.execute(register_statements.FORGET_WAITERS, (boot,))
            connection.execute(statements.REMEMBER, (_CHECKED, boot))
        return connection, Anchor(path, directory)
    except BaseException:
        connection.close()
        raise


def _is_damage(error: sqlite3.Error, known: bool) -> bool:
    """Whether this is a damaged lock file. A file without a database header may be anything, unless it is ``known``."""
    code = primary_code(error)
    return code == sqlite3.SQLITE_CORRUPT or (code == sqlite3.SQLITE_NOTADB and known)


def _set_aside(path: str) -> None:
    aside = f"{path}.damaged"
    _log.warning("lock file %s was damaged (power cut?); it is now %s, and a new one is used", path, aside)
    os.replace(path, aside)
    for suffix in ("-shm", "-wal"):
        _remove(path + suffix)
    create_file(path)


def _is_only_process(directory: PrivateDirectory, ours: Collection[str]) -> bool:
    """Whether every other process that ever opened the file is dead. The opening lock keeps new ones out."""
    others = set(liveness.identities(directory.fileno)).difference(ours)
    return all(liveness.is_dead(directory.fileno, other) for other in others)


@contextlib.contextmanager
def _sole_opener(directory: PrivateDirectory) -> Iterator[int]:
    """Serializes openings among all processes. Yields the descriptor of the record."""
    if not directory.in_place():
        raise Displaced(directory.path)  # in a removed directory this lock would exclude no other process
    record = os.open("opening", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory.fileno)
    try:
        try:
            fcntl.flock(record, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Contended from None
        yield record
    finally:
        os.close(record)


def _recorded(record: int) -> tuple[int, ...]:
    """The inodes of database, log and index that belong together; three times ``_NONE`` if they are not recorded."""
    try:
        inodes = tuple(int(word) for word in os.pread(record, 128, 0).split())
    except ValueError:
        inodes = ()
    return inodes if len(inodes) == 3 else (_NONE,) * 3


def _write_record(record: int, inodes: tuple[int, ...], *, durable: bool) -> None:
    if _recorded(record) != inodes:
        text = " ".join(map(str, inodes)).encode()
        os.ftruncate(record, 0)  # interrupted after this, the record is empty, which is safe
        os.pwrite(record, text, 0)
        if durable:
            os.fsync(record)  # after a power cut it proves that the log belongs to the database


def _inodes(path: str) -> tuple[int, ...]:
    return tuple(_inode(path + suffix) for suffix in ("", "-wal", "-shm"))


def _inode(path: str) -> int:
    try:
        return os.lstat(path).st_ino
    except FileNotFoundError:
        return _NONE


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
