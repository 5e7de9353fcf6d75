"""SQLAlchemy's connections and sessions. The async ones run the sync code, as SQLAlchemy itself does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError
from holdfast.fencing.sql.database import SyncDatabase, no_transaction
from holdfast.fencing.sql.dbapi import require_psycopg_transaction, require_sqlite_transaction, sqlite_begins_late
from holdfast.fencing.sql.plan import Plan, Row
from holdfast.fencing.sql.statements import Request, dialect_of

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session, scoped_session


class ConnectionDatabase(SyncDatabase):
    """A Connection: SQLAlchemy's transaction, on the driver's connection below it."""

    style = "named"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.dialect = dialect_of(connection.dialect.name)

    def require_transaction(self) -> None:
        # As the first statement would do anyway. It must come before the driver is examined: if the application sends
        # BEGIN from SQLAlchemy's event "begin", the driver is in autocommit mode until then.
        if not self._connection.in_transaction():
            self._connection.begin()
        driver: Any = self._connection.connection.driver_connection
        if hasattr(driver, "in_transaction"):  # sqlite3, aiosqlite
            require_sqlite_transaction(driver)
            if self._connection.in_nested_transaction() and sqlite_begins_late(driver):
                raise no_transaction(
                    "begin_nested() on SQLite without a BEGIN before it is a transaction of its own, which ends with "
                    "its block. Check before begin_nested(), or let SQLAlchemy's event 'begin' send BEGIN"
                )
        elif hasattr(driver, "pgconn"):  # psycopg 3, sync or async
            require_psycopg_transaction(driver)
        else:
            self._require_by_dialect()

    def _require_by_dialect(self) -> None:
        """For a driver that only SQLAlchemy knows."""
        try:
            autocommit = self._connection.dialect.detect_autocommit_setting(
                self._connection.connection.dbapi_connection  # type: ignore[arg-type]  # not None: it is checked out
            )
        except (AttributeError, NotImplementedError):
            raise UsageError(
                f"SQLAlchemy's driver {self._connection.dialect.driver!r} does not tell whether it is in autocommit "
                "mode, in which a fence protects nothing; use psycopg, sqlite3 or aiosqlite"
            ) from None
        if autocommit:
            raise no_transaction("this SQLAlchemy connection has the isolation level AUTOCOMMIT")

    def execute(self, request: Request) -> Row | None:
        from sqlalchemy import BigInteger, Text, bindparam, text

        # Typed: SQLAlchemy casts an int to INTEGER for some drivers, and tokens have more than 32 bits.
        kinds = {name: BigInteger() if name == "token" else Text() for name in request.values}
        statement = text(self.text(request)).bindparams(*(bindparam(name, type_=kind) for name, kind in kinds.items()))
        result = self._connection.execute(statement, dict(request.values))
        rows = result.all() if request.returns_rows else []
        return tuple(rows[0]) if rows else None


def session_database(session: Session | scoped_session[Any]) -> ConnectionDatabase:
    """The connection of the session's transaction, which is begun if it is not yet. Nothing is flushed."""
    return ConnectionDatabase(session.connection())


class AsyncConnectionDatabase:
    """An AsyncConnection: the whole check runs on its sync Connection."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def perform(self, plan: Plan) -> None:
        await self._connection.run_sync(lambda connection: ConnectionDatabase(connection).perform(plan))


class AsyncSessionDatabase:
    """An AsyncSession: the whole check runs on its sync Session."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def perform(self, plan: Plan) -> None:
        await self._session.run_sync(lambda session: session_database(session).perform(plan))
