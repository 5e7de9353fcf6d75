"""The tables, and how a connection to them is opened. Times in µs: since boot (expires), since the epoch (since)."""

from __future__ import annotations

import os
import sqlite3
import urllib.parse
from typing import Final

from holdfast.engines.sqlite import statements
from holdfast.errors import EngineRefused

_APPLICATION: Final = 1752132708  # "hold" in ASCII, in the header of the file
_VERSION: Final = 1
#: No fsync. A crash of processes loses nothing; a power cut may damage the file, but it also ends every lease in it,
#: and the first opening after a boot checks the file (opening.py).
OFF: Final = "off"
#: With the log of SQLite: a checkpoint syncs the log before it, and the database after it. Commits sync nothing.
CHECKPOINTS: Final = "normal"
#: The same, and each commit syncs the log.
COMMITS: Final = "full"
#: The log shrinks to this size (in bytes) after it has grown behind a process that was frozen while reading.
LOG_LIMIT: Final = 1 << 19

# The guard of a register is (token, owner). Large columns are the last ones, so that the others are read without them.
# A row of a waiter says until when it is present (expires), and which socket wakes it. It stays for a while after that,
# so that a waiter that is only slow keeps its socket; the next waiter that comes removes rows that are older.
_REGISTERS: Final = """
CREATE TABLE IF NOT EXISTS register (
    name TEXT NOT NULL, part TEXT NOT NULL, version INTEGER NOT NULL, token INTEGER NOT NULL, owner TEXT NOT NULL,
    used INTEGER NOT NULL, durable INTEGER NOT NULL, queue TEXT NOT NULL, value BLOB NOT NULL, UNIQUE (name, part)
);
CREATE TABLE IF NOT EXISTS register_waiter (
    name TEXT, part TEXT, waiter TEXT, process TEXT NOT NULL, boot TEXT NOT NULL, expires INTEGER NOT NULL,
    socket TEXT NOT NULL DEFAULT '', PRIMARY KEY (name, part, waiter)
) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS joined AFTER INSERT ON register_waiter BEGIN
    DELETE FROM register_waiter WHERE name = NEW.name AND part = NEW.part AND expires < NEW.expires - 60000000;
END;
CREATE TRIGGER IF NOT EXISTS forgotten AFTER DELETE ON register BEGIN
    DELETE FROM register_waiter WHERE name = OLD.name AND part = OLD.part;
END;
"""

# What is held of a read-write lock or a semaphore is in rows of ``share``, one for each claim. Meanwhile the row of its
# name in ``lock`` has a mark as its owner, no process and no end: it keeps plain claims out, also those of processes
# with an earlier version. Triggers write the mark, and leave the queue, in the same transaction as the grant. A
# read-write lock of which nothing is held is forgotten; a semaphore is kept, because of its size.
_MARKED: Final = """
    INSERT INTO lock (name, owner, process, boot, expires, ttl, token, since, description)
    VALUES (NEW.name, {mark}, '', {boot}, 4611686018427387904, 2305843009213693952, {token}, {since}, x'7b7d')
    ON CONFLICT (name) DO UPDATE SET
        owner = excluded.owner, process = '', boot = excluded.boot, expires = excluded.expires, ttl = excluded.ttl,
        token = max(token, excluded.token), since = excluded.since, description = excluded.description;
"""
_SHARES: Final = f"""
CREATE TABLE IF NOT EXISTS share (
    name TEXT NOT NULL, owner TEXT NOT NULL, mode TEXT NOT NULL, permits INTEGER NOT NULL, process TEXT NOT NULL,
    boot TEXT NOT NULL, expires INTEGER NOT NULL, ttl INTEGER NOT NULL, token INTEGER NOT NULL, since INTEGER NOT NULL,
    description BLOB NOT NULL, UNIQUE (name, owner)
);
CREATE TABLE IF NOT EXISTS semaphore (name TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, used INTEGER NOT NULL);
CREATE TRIGGER IF NOT EXISTS shared AFTER INSERT ON share BEGIN
    {
    _MARKED.format(
        mark="CASE NEW.mode WHEN 'permits' THEN '#semaphore' ELSE '#rwlock' END",
        boot="NEW.boot",
        token="NEW.token",
        since="NEW.since",
    )
}
    UPDATE semaphore SET used = NEW.since WHERE name = NEW.name AND used < NEW.since - 1000000;
    DELETE FROM queue WHERE name = NEW.name AND owner = NEW.owner;
END;
CREATE TRIGGER IF NOT EXISTS unshared AFTER DELETE ON share
WHEN OLD.mode <> 'permits' AND NOT EXISTS (SELECT 1 FROM share WHERE name = OLD.name) BEGIN
    UPDATE lock SET owner = NULL, since = {statements.NOW} WHERE name = OLD.name AND owner = '#rwlock';
END;
CREATE TRIGGER IF NOT EXISTS semaphore_created AFTER INSERT ON semaphore BEGIN
    {_MARKED.format(mark="'#semaphore'", boot="''", token="0", since="NEW.used")}
END;
CREATE TRIGGER IF NOT EXISTS semaphore_forgotten AFTER DELETE ON semaphore BEGIN
    UPDATE lock SET owner = NULL, since = {statements.NOW} WHERE name = OLD.name AND owner = '#semaphore';
END;
"""  # noqa: S608  (constants only)

# A waiter finds its own entry by this one, however long the queue is.
_INDEX: Final = "CREATE INDEX IF NOT EXISTS queue_owner ON queue (name, owner);"

# A claim that has waited leaves the queue with its grant. Only statements that set ``waiting`` cause this: what nearly
# every acquire and release is does not.
_LEFT: Final = """
CREATE TRIGGER IF NOT EXISTS left_queue AFTER UPDATE OF waiting ON lock
WHEN NEW.owner IS NOT NULL AND NEW.owner IS NOT OLD.owner BEGIN
    DELETE FROM queue WHERE name = NEW.name AND owner = NEW.owner;
END;
"""

# The one of earlier versions, "queued", also undid what a waiter had asked for that was overtaken (2).
_ENTERED: Final = """
DROP TRIGGER IF EXISTS queued;
CREATE TRIGGER IF NOT EXISTS entered_queue AFTER INSERT ON queue BEGIN
    UPDATE lock SET waiting = 1 WHERE name = NEW.name AND waiting = 0;
END;
"""

# A free lock keeps its row because of the token (owner IS NULL). Only the name is indexed: taking and freeing rewrite
# one page, and pages are small because the log computes a checksum over the whole page.
# ``waiting``: a release is to wake the first waiter. Every entry into the queue sets it, and the release that sends the
# wake-up clears it; the waiter sets it again with its grant, or before it goes on waiting. So it is 0 without a waiter,
# or while a wake-up is under way. If that is lost, waiters poll (a waiter of an earlier version does not set it again,
# and polls, too). 2: a waiter was overtaken, and the release is to hand the name over, as that of a fair claim does
# in any case. Then the row has no ttl (0) until the waiter has begun its lease.
# The column ``bell`` contains the name of the waiter's wake-up socket.
_CREATE: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS lock (
    name TEXT NOT NULL UNIQUE, owner TEXT, process TEXT NOT NULL, boot TEXT NOT NULL, expires INTEGER NOT NULL,
    ttl INTEGER NOT NULL, token INTEGER NOT NULL, since INTEGER NOT NULL, description BLOB NOT NULL,
    waiting INTEGER NOT NULL DEFAULT 1
);
CREATE TABLE IF NOT EXISTS queue (
    name TEXT, seq INTEGER, owner TEXT NOT NULL, process TEXT NOT NULL, boot TEXT NOT NULL, expires INTEGER NOT NULL,
    bell TEXT NOT NULL, since INTEGER NOT NULL DEFAULT 0, description BLOB NOT NULL DEFAULT x'',
    mode TEXT NOT NULL DEFAULT 'exclusive', permits INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (name, seq)
) WITHOUT ROWID;
{_INDEX}
{_ENTERED}
{_LEFT}
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
{_REGISTERS}
{_SHARES}
PRAGMA application_id = 1752132708;
PRAGMA user_version = 1;
COMMIT;
"""

# For a file of an earlier version, which lacks columns, tables, an index or a trigger. The version number stays:
# processes with the earlier version may have the file open, or open it later. They name the columns that they write,
# and the new ones have defaults.
_ADDITIONS: Final = {
    "queue.description": """
        ALTER TABLE queue ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE queue ADD COLUMN description BLOB NOT NULL DEFAULT x'';
    """,
    "queue.permits": """
        ALTER TABLE queue ADD COLUMN mode TEXT NOT NULL DEFAULT 'exclusive';
        ALTER TABLE queue ADD COLUMN permits INTEGER NOT NULL DEFAULT 1;
    """,
    "register": _REGISTERS,
    "share": _SHARES,
    "queue_owner": _INDEX,
    "entered_queue": _ENTERED,
    "left_queue": _LEFT,
}
_THERE: Final = """
    SELECT name FROM sqlite_schema WHERE type IN ('table', 'index', 'trigger')
    UNION ALL SELECT 'queue.' || name FROM pragma_table_info('queue')
"""


def open_connection(path: str) -> sqlite3.Connection:
    """A connection in autocommit mode, for use by any thread (one at a time). Raises sqlite3.Error unchanged."""
    # SQLite must not create the file: it could end up beside the log of a file that was removed a moment ago.
    address = f"file:{urllib.parse.quote(os.fsencode(path))}?mode=rw"
    connection = sqlite3.connect(
        address, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=64, uri=True
    )
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    application, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    fresh = not application and not version and not connection.execute("SELECT 1 FROM sqlite_schema").fetchall()
    if not fresh and application != _APPLICATION:
        raise EngineRefused(f"lock file {path}: it is the database of another program; name another file")
    if not fresh and version != _VERSION:
        raise EngineRefused(f"lock file {path}: its format is version {version}, this is a holdfast for {_VERSION}")
    if fresh:
        connection.execute("PRAGMA page_size = 1024")
    if _pragma(connection, "journal_mode = wal") != "wal":
        raise EngineRefused(f"lock file {path}: write-ahead logging is not possible there")
    set_sync(connection, OFF)
    # The store runs checkpoints itself, after it has verified that both files are in place: otherwise old pages would
    # be written into a file that another process has created since.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT}")
    if fresh:
        connection.executescript(_CREATE)
        return
    there = {name for (name,) in connection.execute(_THERE)}
    missing = [addition for what, addition in _ADDITIONS.items() if what not in there]
    if missing:
        connection.executescript(f"BEGIN IMMEDIATE; {''.join(missing)} COMMIT;")


def set_sync(connection: sqlite3.Connection, level: str) -> None:
    """What the next commits and checkpoints of this connection wait for: ``OFF``, ``CHECKPOINTS`` or ``COMMITS``."""
    connection.execute(f"PRAGMA synchronous = {level}")


def _pragma(connection: sqlite3.Connection, text: str) -> object:
    (value,) = connection.execute(f"PRAGMA {text}").fetchone()
    return value


def is_sound(connection: sqlite3.Connection, most_pages: int | None) -> bool:
    """Whether the file passes SQLite's own check. With ``most_pages``: the quick check, and none for a larger file;
    with None: the complete check."""
    try:
        pages = _pragma(connection, "page_count")
        if most_pages is not None and isinstance(pages, int) and pages > most_pages:
            return True
        return _pragma(connection, "quick_check(1)" if most_pages else "integrity_check(1)") == "ok"
    except sqlite3.DatabaseError:
        return False


def recall(connection: sqlite3.Connection, key: str) -> object:
    """A value of the meta table, or None."""
    row = connection.execute(statements.REMEMBERED, (key,)).fetchone()
    return None if row is None else row[0]
