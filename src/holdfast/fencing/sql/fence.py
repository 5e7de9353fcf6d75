"""The public class: what users call, sync and async."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

from holdfast.errors import UsageError
from holdfast.fencing.rule import Lease
from holdfast.fencing.sql import plan, statements
from holdfast.fencing.sql.connections import Sync, async_database, sync_database
from holdfast.fencing.sql.table import TableName

if TYPE_CHECKING:
    import sqlite3

    import aiosqlite
    import psycopg
    import sqlalchemy
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session, scoped_session

    #: A connection, or a session, on which a transaction can be open. Of Django: ``using=``.
    SyncConnection: TypeAlias = (
        sqlite3.Connection | psycopg.Connection[Any] | sqlalchemy.Connection | Session | scoped_session[Any]
    )
    AnyAsyncConnection: TypeAlias = psycopg.AsyncConnection[Any] | aiosqlite.Connection | AsyncConnection | AsyncSession

DEFAULT_TABLE: Final = "holdfast_fence"


class SqlFence:
    """A fence inside the user's own transaction, for PostgreSQL and SQLite.

    ::

        fence = SqlFence()
        with locks.lock("orders") as lease, engine.begin() as db:
            fence.check(db, "orders", lease)       # the first statement of the transaction
            db.execute(...)

    It keeps one row for each resource, in the database that it protects: the newest token and its owner. ``table`` is
    'table' or 'schema.table'; :meth:`ddl`, :meth:`create`, :meth:`table` or a migration creates it.

    The object has no connection and no state. Share it between threads, tasks and processes as you like.
    """

    __slots__ = ("_table",)

    def __init__(self, table: str = DEFAULT_TABLE) -> None:
        self._table = TableName.parse(table)

    @overload
    def check(self, db: SyncConnection, resource: str, token: int | Lease, owner: str | None = None) -> None: ...

    @overload
    def check(self, *, using: str, resource: str, token: int | Lease, owner: str | None = None) -> None: ...

    def check(
        self,
        db: Any = None,
        resource: Any = None,
        token: Any = None,
        owner: str | None = None,
        *,
        using: str | None = None,
    ) -> None:
        """Check the token and lock the resource's row until the transaction ends. Raises :class:`holdfast.StaleToken`.

        ``db`` is an open connection of sqlite3 or psycopg, or SQLAlchemy's Connection or Session; with Django give
        ``using``, the alias of a database. ``token`` is a lease, or a token with its ``owner``.

        Guarantee: from here to COMMIT no other transaction passes a check of this resource, and what it committed
        before is visible to the statements that follow. After COMMIT every older token is refused. Only the lease's
        token and owner count, not whether it is still held.

        Make it the *first* statement, and read and write in the same transaction. Not protected: what was read before
        the check; what is written after a rollback to a savepoint that was set before the check; what is written after
        a StaleToken that was caught inside the transaction. ROLLBACK undoes the check as well.

        It waits for an open transaction that has checked the same resource, for as long as the database allows
        (PostgreSQL: ``lock_timeout``; SQLite: the connection's ``timeout``). Errors of the driver pass unchanged; at
        REPEATABLE READ and SERIALIZABLE one of them is a serialization failure (40001): retry the transaction.
        A missing table is :class:`holdfast.EngineRefused`; autocommit, or another database, is
        :class:`holdfast.UsageError`.
        """
        wanted = plan.check(self._table, resource, token, owner)
        self._database(db, using, "check").perform(wanted)

    async def check_async(
        self, db: AnyAsyncConnection, resource: str, token: int | Lease, owner: str | None = None
    ) -> None:
        """:meth:`check` for async connections: psycopg's and SQLAlchemy's, AsyncSession, and aiosqlite.

        Cancelling it leaves the transaction as the driver leaves it: roll it back.
        """
        wanted = plan.check(self._table, resource, token, owner)
        await async_database(db, "check").perform(wanted)

    def ddl(self, dialect: str) -> str:
        """The text of CREATE TABLE (IF NOT EXISTS), for ``"postgresql"`` or ``"sqlite"``: for scripts and migrations.

        A schema in the table's name has to exist already.
        """
        return statements.create_table(self._table, statements.dialect_of(dialect))

    @overload
    def create(self, db: SyncConnection) -> None: ...

    @overload
    def create(self, *, using: str) -> None: ...

    def create(self, db: Any = None, *, using: str | None = None) -> None:
        """Run :meth:`ddl` on this connection: for scripts and tests. It does not commit.

        An existing table is not changed, even if it has other columns; :meth:`check` reports that.
        """
        self._database(db, using, "create").perform(plan.create(self._table))

    async def create_async(self, db: AnyAsyncConnection) -> None:
        """:meth:`create` for async connections."""
        await async_database(db, "create").perform(plan.create(self._table))

    def table(self, metadata: sqlalchemy.MetaData) -> sqlalchemy.Table:
        """The table in SQLAlchemy's ``metadata``, so that ``create_all`` and Alembic's autogenerate know it.

        It is the table of :meth:`ddl`. The first call for a metadata adds it; later ones return the same.
        """
        return self._table.described(metadata)

    @staticmethod
    def _database(db: Any, using: str | None, method: str) -> Sync:
        if (db is None) == (using is None):
            raise UsageError(f"fence.{method}() needs either a connection, or using='alias' for a database of Django")
        if using is None:
            return sync_database(db, method)
        from holdfast.fencing.sql.django import aliased

        return aliased(using)

    def __repr__(self) -> str:
        return f"SqlFence({str(self._table)!r})"
