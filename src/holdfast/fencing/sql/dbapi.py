"""Connections of drivers: sqlite3 and psycopg 3, and their async forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.fencing.sql.database import AsyncDatabase, Database, SyncDatabase, no_transaction
from holdfast.fencing.sql.plan import Row
from holdfast.fencing.sql.statements import Request

if TYPE_CHECKING:
    import sqlite3

    import aiosqlite
    import psycopg

# sqlite3.LEGACY_TRANSACTION_CONTROL, since Python 3.12; before, there was only this.
_LEGACY: Final = -1


def require_sqlite_transaction(connection: sqlite3.Connection | aiosqlite.Connection) -> None:
    """A transaction is open, or Python opens one before an INSERT. Reads no file and takes no lock."""
    if connection.in_transaction:
        return
    mode = getattr(connection, "autocommit", _LEGACY)
    if mode is True or (mode == _LEGACY and connection.isolation_level is None):
        raise no_transaction("this SQLite connection is in autocommit mode, and BEGIN was not executed")


def sqlite_begins_late(connection: sqlite3.Connection | aiosqlite.Connection) -> bool:
    """Python opens the transaction no sooner than the first INSERT, UPDATE, DELETE or REPLACE needs it.

    A SAVEPOINT before that is itself the transaction, and its RELEASE is the COMMIT.
    """
    return getattr(connection, "autocommit", _LEGACY) == _LEGACY and connection.isolation_level is not None


def require_psycopg_transaction(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """A transaction is open, or psycopg opens one before the next statement. Local: no round trip."""
    from psycopg.pq import TransactionStatus

    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise no_transaction("this psycopg connection is in autocommit mode, outside of connection.transaction()")


class SqliteDatabase(SyncDatabase):
    """A connection of sqlite3."""

    dialect = "sqlite"
    style = "named"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def require_transaction(self) -> None:
        require_sqlite_transaction(self._connection)

    def execute(self, request: Request) -> Row | None:
        cursor = self._connection.cursor()
        try:
            cursor.row_factory = None  # the connection's own may return anything
            # All rows: a statement with unread rows would prevent a COMMIT.
            rows = cursor.execute(self.text(request), dict(request.values)).fetchall()
        finally:
            cursor.close()
        return rows[0] if rows else None


class AiosqliteDatabase(AsyncDatabase):
    """A connection of aiosqlite."""

    dialect = "sqlite"
    style = "named"

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    def require_transaction(self) -> None:
        require_sqlite_transaction(self._connection)

    async def execute(self, request: Request) -> Row | None:
        async with self._connection.execute(self.text(request), dict(request.values)) as cursor:
            cursor.row_factory = None
            rows = list(await cursor.fetchall())
        return tuple(rows[0]) if rows else None


class _Psycopg(Database):
    """What psycopg's sync and async connections share."""

    dialect = "postgresql"
    style = "pyformat"

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self._connection: Any = connection

    def require_transaction(self) -> None:
        require_psycopg_transaction(self._connection)

    def _require_still(self, request: Request) -> None:
        """A pipeline in autocommit mode with statements under way has the status ACTIVE, whether or not there is a
        transaction. After the fetch the status is known."""
        if request.locks:
            self.require_transaction()


class PsycopgDatabase(_Psycopg, SyncDatabase):
    """A connection of psycopg 3."""

    def execute(self, request: Request) -> Row | None:
        import psycopg
        from psycopg.rows import tuple_row

        # Not connection.cursor(): the connection's factories may expect other placeholders and return other rows.
        with psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(self.text(request).encode(), request.values)
            # Not by cursor.description: in pipeline mode it is only known after the fetch.
            row = cursor.fetchone() if request.returns_rows else None
        self._require_still(request)
        return row


class AsyncPsycopgDatabase(_Psycopg, AsyncDatabase):
    """An async connection of psycopg 3."""

    async def execute(self, request: Request) -> Row | None:
        import psycopg
        from psycopg.rows import tuple_row

        async with psycopg.AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(self.text(request).encode(), request.values)
            row = await cursor.fetchone() if request.returns_rows else None
        self._require_still(request)
        return row
