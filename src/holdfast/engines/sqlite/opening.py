"""Opening the file: one process at a time, for creating, replacing and repairing are not one statement.

The lock is ``flock`` on ``<lock file>.d/opening``. That file also says which database, log and index belong together
(their inodes), as the last opener left them. A new database beside the log of a removed one would be read through that
log: so log and index that belong to something else are removed before SQLite looks at them. Processes that still have
them open are displaced. They notice with their next write, for the opener removes their liveness files before any
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

from holdfast.engines.sqlite import liveness, schema, statements
from holdfast.engines.sqlite.anchor import Anchor, is_open
from holdfast.engines.sqlite.bell import ring
from holdfast.engines.sqlite.faults import Contended, Displaced, primary_code
from holdfast.engines.sqlite.paths import PrivateDirectory, create_file

_log: Final = logging.getLogger("holdfast.sqlite")
_CHECKED: Final = "boot"
_NONE: Final = 0  # in the place of the inode of a file that is not there
#: A larger file (about 25,000 names) is not checked as a whole when it is opened: opening must not grow with it, and
#: damage is noticed when it is met. In pages of 1 KiB; SQLite checks about 400 of them in a millisecond.
_CHECKED_PAGES: Final = 8192
#: What a watchdog cannot decode makes it ask about everything that it holds.
ABOUT_ALL: Final = b"\xff"

Opened = tuple[sqlite3.Connection, Anchor]


def open_files(
    path: str, directory: PrivateDirectory, boot: str, identity: str, former: Collection[str], *, suspect: bool
) -> Opened:
    """Open the lock file; create it if there is none.

    A damaged one is put aside and replaced by an empty one, if no process but ours (``identity``, or ``former`` ones)
    can have it open: every lease in it is over, and tokens go on from the clock. Otherwise the error is raised. The
    file is checked at the first opening after a boot (nothing is ever synced, so a power cut may tear it), after a
    displacement, and if it is ``suspect``.
    """
    with _sole_opener(directory) as record:
        try:
            opened, displaced = _open_recorded(path, directory, boot, identity, former, record, suspect)
        except (FileNotFoundError, FileExistsError) as error:
            raise Displaced(path) from error  # removed or replaced while we opened them: once more
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
    displaced = _remove_strangers(path, belonging, directory, identity)
    try:
        opened = _open_checked(path, directory, boot, thorough=suspect, check=displaced or suspect)
    except sqlite3.DatabaseError as error:
        known = os.stat(path).st_ino == belonging[0]
        if not _is_damage(error, known) or not (displaced or _alone(directory, {identity, *former})):
            raise
        _end_others(directory, identity)
        _put_aside(path)
        displaced = True
        opened = _open_checked(path, directory, boot, thorough=False, check=False)
    try:
        _write_record(record, opened[1].inodes())
    except BaseException:
        close(*opened)
        raise
    return opened, displaced


def open_again(path: str, directory: PrivateDirectory, anchor: Anchor) -> sqlite3.Connection:
    """A connection to the files that ``anchor`` still holds: the last one was closed for a fork."""
    with _sole_opener(directory):
        if not anchor.in_place():
            raise Displaced(path)
        connection = schema.open_connection(path)
        if not anchor.in_place():  # an operator was between the look and the opening
            connection.close()
            raise Displaced(path)
        return connection


def close(connection: sqlite3.Connection, anchor: Anchor) -> None:
    """Close files without tidying up: SQLite cannot, as long as the anchor holds them."""
    connection.close()
    anchor.close()


def notify_all(directory: PrivateDirectory) -> None:
    """Have every watchdog ask about its leases now: they are in files that were displaced. Best effort."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory.fileno):
            if ".doze-" in name:
                ring(directory, name, ABOUT_ALL)


def _remove_strangers(path: str, belonging: tuple[int, ...], directory: PrivateDirectory, identity: str) -> bool:
    """Leave nothing beside the database that is not its own; create it if it is missing. True if others that have
    files open are displaced thereby, or were before."""
    found = _inodes(path)
    empty = found[0] != _NONE and os.path.getsize(path) == 0
    if found[0] != _NONE and not empty:
        if _NONE == found[1] == found[2]:
            # The last process to close it has tidied up. If one has it open, it was an operator instead.
            intact = belonging[0] in (_NONE, found[0]) and not is_open(path)
        else:
            # As it was left; or the record went with its directory, and SQLite joins the processes that have it open.
            intact = found == belonging or (belonging[0] == _NONE and _NONE not in found)
        if intact:
            return False
    _end_others(directory, identity)
    for suffix in ("-shm", "-wal"):
        _remove(path + suffix)
    if empty:
        _remove(path)  # emptied in place: processes that have it open must not write into the new one
    if empty or found[0] == _NONE:
        create_file(path)
    return True


def _end_others(directory: PrivateDirectory, identity: str) -> None:
    """Nothing that other processes did counts any more. Those that live notice that their liveness file is gone."""
    for other in liveness.identities(directory.fileno):
        if other != identity:
            liveness.remove(directory.fileno, other)


def _open_checked(path: str, directory: PrivateDirectory, boot: str, *, thorough: bool, check: bool) -> Opened:
    expected = _inodes(path)
    connection = schema.open_connection(path)
    try:
        if any(there not in (_NONE, now) for there, now in zip(expected, _inodes(path), strict=True)):
            raise FileNotFoundError(path)  # an operator was between the look and the opening
        rebooted = schema.recall(connection, _CHECKED) != boot
        if (check or rebooted) and not schema.is_sound(connection, None if thorough else _CHECKED_PAGES):
            damaged = sqlite3.DatabaseError("the file does not pass its check")
            damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise damaged
        if rebooted:
            connection.execute(statements.FORGET_QUEUES, (boot,))
            connection.execute(statements.REMEMBER, (_CHECKED, boot))
        return connection, Anchor(path, directory)
    except BaseException:
        connection.close()
        raise


def _is_damage(error: sqlite3.Error, known: bool) -> bool:
    """Is this a damaged lock file? One that does not begin like a database may be anything, unless it is ``known``."""
    code = primary_code(error)
    return code == sqlite3.SQLITE_CORRUPT or (code == sqlite3.SQLITE_NOTADB and known)


def _put_aside(path: str) -> None:
    aside = f"{path}.damaged"
    _log.warning("lock file %s was damaged (power cut?); it is now %s, and a new one is used", path, aside)
    os.replace(path, aside)
    for suffix in ("-shm", "-wal"):
        _remove(path + suffix)
    create_file(path)


def _alone(directory: PrivateDirectory, ours: Collection[str]) -> bool:
    """Is every other process that ever opened the file dead? None can come in meanwhile: see the sole opener."""
    others = set(liveness.identities(directory.fileno)).difference(ours)
    return all(liveness.is_dead(directory.fileno, other) for other in others)


@contextlib.contextmanager
def _sole_opener(directory: PrivateDirectory) -> Iterator[int]:
    """Openings one after another, among all processes. Gives the descriptor of the record."""
    if not directory.in_place():
        raise Displaced(directory.path)  # in a directory that was removed, we would be alone with this lock
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
    """The inodes of database, log and index that belong together; three times none if it does not say."""
    try:
        inodes = tuple(int(word) for word in os.pread(record, 128, 0).split())
    except ValueError:
        inodes = ()
    return inodes if len(inodes) == 3 else (_NONE,) * 3


def _write_record(record: int, inodes: tuple[int, ...]) -> None:
    if _recorded(record) != inodes:
        text = " ".join(map(str, inodes)).encode()
        os.ftruncate(record, 0)  # interrupted after this: it says nothing, which is no lie
        os.pwrite(record, text, 0)


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
