"""Errors of the lock file, translated into the port's two kinds: retry, or do not."""

from __future__ import annotations

import errno
import sqlite3
from typing import Final

from holdfast.engines.base import RequestFailed
from holdfast.errors import EngineRefused


class Contended(Exception):
    """Another process is inside a transaction at this moment. Nothing was changed; retry soon."""


class Displaced(Contended):
    """The open files are not the ones that the path leads to. Whatever was written to them is void: repeat it in a
    newly opened store."""


# The primary codes of SQLite: an extended code has further bits above the low eight.
_CONTENDED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_PASSING: Final = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_NOMEM: "out of memory",
    sqlite3.SQLITE_CANTOPEN: "SQLite cannot open it or its log (too many open files, or its directory is gone)",
}
_REFUSED: Final = {
    sqlite3.SQLITE_NOTADB: "it is not an SQLite database; name another file",
    sqlite3.SQLITE_CORRUPT: "it is damaged; a new one is begun as soon as no other process uses it",
    sqlite3.SQLITE_READONLY: "it, or its directory, is read-only",
    sqlite3.SQLITE_PERM: "permission denied",
    sqlite3.SQLITE_AUTH: "permission denied",
}
_PASSING_ERRNO: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EAGAIN, errno.EINTR}
)


def primary_code(error: sqlite3.Error) -> int:
    """The primary result code of ``error``; -1 for an error that Python raised without asking SQLite."""
    code: int = getattr(error, "sqlite_errorcode", -1)
    return code & 0xFF if code >= 0 else -1


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite found content in the file that it cannot have written."""
    return primary_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def of_sqlite(error: sqlite3.Error, path: str) -> Exception:
    """The error to raise instead of ``error``."""
    code = primary_code(error)
    if code in _CONTENDED:
        return Contended(path)
    if code in _PASSING:
        return RequestFailed(f"lock file {path}: {_PASSING[code]}", may_have_happened=False)
    if code == sqlite3.SQLITE_IOERR:
        # The commit itself may have failed; only a later read can show whether it took effect.
        return RequestFailed(f"lock file {path}: input/output error ({error})", may_have_happened=True)
    return EngineRefused(f"lock file {path}: {_REFUSED.get(code) or str(error)}")


def damaged_user_data(path: str) -> EngineRefused:
    """The error for a damaged file that is not replaced by an empty one, because it contains user data."""
    return EngineRefused(
        f"lock file {path}: it is damaged, and it contains the state of monitors or other user data, so it is not "
        "replaced; restore a backup (without the -wal and -shm files beside it), or move it away to begin with an "
        "empty one"
    )


def of_system(error: OSError, path: str) -> Exception:
    """The error to raise instead of ``error``, which came from a system call on ``path`` or beside it."""
    message = f"lock file {path}: {error.strerror or error}"
    if error.errno in _PASSING_ERRNO:
        return RequestFailed(message, may_have_happened=False)
    return EngineRefused(message)
