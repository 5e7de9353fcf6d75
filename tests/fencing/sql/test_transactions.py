"""A check needs a transaction that outlives it; a connection without one is refused before anything is written."""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import aiosqlite
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from psycopg.types.string import StrDumper
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from holdfast.errors import InvalidName, StaleToken, UsageError
from holdfast.fencing import SqlFence
from holdfast.fencing.sql.dbapi import require_sqlite_transaction
from tests.fencing.sql.stores import Store
from tests.servers.postgres import PostgresServer


def _alchemy(store: Store, driver: str = "") -> str:
    return f"postgresql+psycopg://{store.place}" if "@" in store.place else f"sqlite{driver}:///{store.place}"


@pytest.fixture(params=[pytest.param("postgresql", marks=pytest.mark.needs_postgres), "sqlite"])
def alchemy_url(request: pytest.FixtureRequest) -> str:
    name = "postgres_store" if request.param == "postgresql" else "sqlite_store"
    return _alchemy(request.getfixturevalue(name))


# ---- psycopg


def test_psycopg_autocommit_is_refused_outside_of_a_transaction_and_accepted_inside(
    postgres_server: PostgresServer, postgres_store: Store, sql_fence: SqlFence
) -> None:
    with postgres_server.connect(autocommit=True) as db:
        with pytest.raises(UsageError, match="autocommit"):
            sql_fence.check(db, "orders", 2)
        with db.pipeline(), pytest.raises(UsageError, match="autocommit"):
            sql_fence.check(db, "orders", 2)
        assert db.execute("SELECT * FROM holdfast_fence").fetchall() == []
        with db.transaction():
            sql_fence.check(db, "orders", 2)
        with db.pipeline(), db.transaction():
            sql_fence.check(db, "orders", 2)
        with pytest.raises(StaleToken), db.transaction():
            sql_fence.check(db, "orders", 1)
        assert db.info.transaction_status.name == "IDLE"


async def test_async_psycopg_autocommit_is_refused_outside_of_a_transaction(
    postgres_server: PostgresServer, postgres_store: Store, sql_fence: SqlFence
) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_server.url, autocommit=True) as db:
        with pytest.raises(UsageError, match="autocommit"):
            await sql_fence.check_async(db, "orders", 2)
        async with db.transaction():
            await sql_fence.check_async(db, "orders", 2)


def test_pipeline_in_autocommit_is_refused_with_pending_statements(
    postgres_server: PostgresServer, postgres_store: Store, sql_fence: SqlFence
) -> None:
    with postgres_server.connect(autocommit=True) as db:
        with db.pipeline():
            db.execute("SELECT 1")
            with pytest.raises(UsageError, match="autocommit"):
                sql_fence.check(db, "orders", 2)
        with db.pipeline(), db.transaction():
            db.execute("SELECT 1")
            sql_fence.check(db, "orders", 2)
            db.execute("SELECT 1")
            sql_fence.check(db, "orders", 2)


async def test_async_pipeline_in_autocommit_is_refused_with_pending_statements(
    postgres_server: PostgresServer, postgres_store: Store, sql_fence: SqlFence
) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_server.url, autocommit=True) as db:
        async with db.pipeline():
            await db.execute("SELECT 1")
            with pytest.raises(UsageError, match="autocommit"):
                await sql_fence.check_async(db, "orders", 2)
        async with db.pipeline(), db.transaction():
            await db.execute("SELECT 1")
            await sql_fence.check_async(db, "orders", 2)


@pytest.mark.parametrize("factory", [psycopg.RawCursor, psycopg.ClientCursor])
def test_connection_factories_have_no_effect(
    postgres_server: PostgresServer, postgres_store: Store, sql_fence: SqlFence, factory: Any
) -> None:
    with postgres_server.connect(row_factory=dict_row, cursor_factory=factory) as db:
        sql_fence.check(db, "orders", 2)
        with pytest.raises(StaleToken):
            sql_fence.check(db, "orders", 1)


class _Resource(enum.StrEnum):
    ORDERS = "orders"


class _ByName(StrDumper):
    """An adapter registered by the application."""

    def dump(self, obj: str) -> bytes:
        return obj.name.encode() if isinstance(obj, _Resource) else obj.encode()


def test_application_adapters_do_not_change_names(
    postgres_server: PostgresServer, postgres_store: Store, sql_fence: SqlFence
) -> None:
    with postgres_server.connect() as db:
        db.adapters.register_dumper(_Resource, _ByName)
        sql_fence.check(db, _Resource.ORDERS, 1, _Resource.ORDERS)
        assert db.execute("SELECT resource, owner FROM holdfast_fence").fetchall() == [("orders", "orders")]


def test_failed_transaction_raises_the_driver_error(
    postgres_server: PostgresServer, postgres_store: Store, sql_fence: SqlFence
) -> None:
    with postgres_server.connect() as db:
        with pytest.raises(psycopg.errors.DivisionByZero):
            db.execute("SELECT 1/0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            sql_fence.check(db, "orders", 1)


# ---- sqlite3


def test_sqlite_in_autocommit_is_refused_until_begin(sqlite_store: Store, sql_fence: SqlFence) -> None:
    with closing(sqlite3.connect(sqlite_store.place, isolation_level=None)) as db:
        with pytest.raises(UsageError, match="autocommit"):
            sql_fence.check(db, "orders", 1)
        assert db.execute("SELECT * FROM holdfast_fence").fetchall() == []
        db.execute("BEGIN IMMEDIATE")
        sql_fence.check(db, "orders", 1)
        db.execute("COMMIT")


@pytest.mark.parametrize("level", ["", "DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
def test_sqlite_opens_a_transaction_for_the_check(sqlite_store: Store, sql_fence: SqlFence, level: Any) -> None:
    with closing(sqlite3.connect(sqlite_store.place, isolation_level=level)) as db:
        assert not db.in_transaction
        sql_fence.check(db, "orders", 1)
        assert db.in_transaction


class _Since312(sqlite3.Connection):
    """Provides the attribute of Python 3.12 on every Python."""

    autocommit: Any = -1


@pytest.mark.parametrize(
    "mode, level, refused",
    [(True, "", True), (False, None, False), (False, "", False), (-1, "", False), (-1, None, True)],
)
def test_autocommit_attribute_of_python_3_12_is_honoured(mode: Any, level: Any, refused: bool) -> None:
    class Connection(_Since312):
        autocommit = mode

    # Set after the connection was opened: Python 3.12 would act on it, and this test only covers the decision.
    with closing(sqlite3.connect(":memory:", factory=Connection, isolation_level=level)) as db:
        if refused:
            with pytest.raises(UsageError, match="autocommit"):
                require_sqlite_transaction(db)
        else:
            require_sqlite_transaction(db)


async def test_aiosqlite_in_autocommit_is_refused(sqlite_store: Store, sql_fence: SqlFence) -> None:
    async with aiosqlite.connect(sqlite_store.place, isolation_level=None) as db:
        with pytest.raises(UsageError, match="autocommit"):
            await sql_fence.check_async(db, "orders", 1)
        await db.execute("BEGIN IMMEDIATE")
        await sql_fence.check_async(db, "orders", 1)
        await db.commit()


def test_row_and_text_factories_have_no_effect(sqlite_store: Store, sql_fence: SqlFence) -> None:
    with closing(sqlite3.connect(sqlite_store.place)) as db:
        db.row_factory = lambda cursor, row: {"a": "dict"}
        db.text_factory = bytes
        sql_fence.check(db, "orders", 2, "a")
        sql_fence.check(db, "orders", 2, "a")
        for token, owner in ((1, "a"), (2, "b")):
            with pytest.raises(StaleToken):
                sql_fence.check(db, "orders", token, owner)


# ---- SQLAlchemy


@pytest.fixture
def engine(alchemy_url: str) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(alchemy_url, poolclass=NullPool)
    yield engine
    engine.dispose()


def _stored(engine: sqlalchemy.Engine) -> list[int]:
    with engine.connect() as db:
        return list(db.execute(sqlalchemy.text("SELECT token FROM holdfast_fence")).scalars())


def test_sqlalchemy_autocommit_of_engine_or_connection_is_refused(
    engine: sqlalchemy.Engine, sql_fence: SqlFence
) -> None:
    for autocommit in (
        sqlalchemy.create_engine(engine.url, poolclass=NullPool, isolation_level="AUTOCOMMIT"),
        engine.execution_options(isolation_level="AUTOCOMMIT"),
    ):
        with autocommit.begin() as db, pytest.raises(UsageError, match="autocommit"):
            sql_fence.check(db, "orders", 1)
        with Session(autocommit) as session, pytest.raises(UsageError, match="autocommit"):
            sql_fence.check(session, "orders", 1)
    with engine.connect() as db, pytest.raises(UsageError, match="autocommit"):
        sql_fence.check(db.execution_options(isolation_level="AUTOCOMMIT"), "orders", 1)
    assert _stored(engine) == []


@pytest.mark.parametrize(
    "driver", [pytest.param("postgresql+psycopg", marks=pytest.mark.needs_postgres), "sqlite+aiosqlite"]
)
async def test_async_sqlalchemy_autocommit_is_refused(
    request: pytest.FixtureRequest, sql_fence: SqlFence, driver: str
) -> None:
    store = request.getfixturevalue("postgres_store" if driver.startswith("postgresql") else "sqlite_store")
    engine = create_async_engine(_alchemy(store, "+aiosqlite"), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    async with engine.begin() as db:
        with pytest.raises(UsageError, match="autocommit"):
            await sql_fence.check_async(db, "orders", 1)
    await engine.dispose()


def test_check_begins_the_sqlalchemy_transaction(engine: sqlalchemy.Engine, sql_fence: SqlFence) -> None:
    with engine.connect() as db:
        sql_fence.check(db, "orders", 1)
        assert db.in_transaction()
        db.rollback()
        assert _stored(engine) == []
        sql_fence.check(db, "orders", 1)
        db.commit()
    assert _stored(engine) == [1]


def test_name_that_looks_like_an_error_does_not_change_the_driver_error(
    sqlite_store: Store, sql_fence: SqlFence
) -> None:
    """SQLAlchemy's error contains the statement's parameters."""
    engine = sqlalchemy.create_engine(_alchemy(sqlite_store), poolclass=NullPool, connect_args={"timeout": 0})
    with closing(sqlite3.connect(sqlite_store.place)) as other:
        sql_fence.check(other, "orders", 1)
        with engine.begin() as db, pytest.raises(sqlalchemy.exc.OperationalError, match="locked"):
            sql_fence.check(db, "no such table", 1)


def test_scoped_session_is_accepted(engine: sqlalchemy.Engine, sql_fence: SqlFence) -> None:
    session = scoped_session(sessionmaker(engine))
    sql_fence.check(session, "orders", 1)
    session.commit()
    session.remove()
    assert _stored(engine) == [1]


def test_autocommit_driver_with_begin_sent_by_an_event_is_accepted(sqlite_store: Store, sql_fence: SqlFence) -> None:
    """The recipe that gives SQLite applications on SQLAlchemy real transactions and savepoints."""
    engine = sqlalchemy.create_engine(_alchemy(sqlite_store), poolclass=NullPool)

    @sqlalchemy.event.listens_for(engine, "connect")
    def connected(connection: Any, record: object) -> None:
        connection.isolation_level = None

    @sqlalchemy.event.listens_for(engine, "begin")
    def begun(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    with engine.connect() as db:
        sql_fence.check(db, "orders", 1)
        db.rollback()
        assert _stored(engine) == []
        with db.begin_nested():
            sql_fence.check(db, "orders", 2)
        db.commit()
    assert _stored(engine) == [2]


def test_savepoint_that_sqlite_would_commit_is_refused(sqlite_store: Store, sql_fence: SqlFence) -> None:
    """Python's sqlite3 sends no BEGIN before SAVEPOINT: the row lock would end with the block of begin_nested()."""
    engine = sqlalchemy.create_engine(_alchemy(sqlite_store), poolclass=NullPool)
    with engine.begin() as db:
        with db.begin_nested(), pytest.raises(UsageError, match="Check before begin_nested"):
            sql_fence.check(db, "orders", 1)
        sql_fence.check(db, "orders", 2)
        with db.begin_nested():
            pass
        driver: Any = db.connection.driver_connection
        assert driver.in_transaction  # the previous check has opened a real one
    refused = pytest.raises(UsageError, match="Check before begin_nested")
    with Session(engine) as session, session.begin(), session.begin_nested(), refused:
        sql_fence.check(session, "orders", 3)
    assert _stored(engine) == [2]


def test_savepoint_of_postgresql_is_accepted(postgres_store: Store, sql_fence: SqlFence) -> None:
    engine = sqlalchemy.create_engine(_alchemy(postgres_store), poolclass=NullPool)
    with engine.begin() as db, db.begin_nested():
        sql_fence.check(db, "orders", 1)
    assert _stored(engine) == [1]


def test_driver_with_an_unknown_mode_is_refused(
    engine: sqlalchemy.Engine, sql_fence: SqlFence, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Foreign:
        """A driver connection known only to SQLAlchemy."""

    engine.connect().close()  # SQLAlchemy itself queries the driver on first use
    monkeypatch.setattr(engine.dialect, "get_driver_connection", lambda connection: Foreign())
    with engine.begin() as db:
        sql_fence.check(db, "orders", 1)  # decided from the dialect
    with engine.connect() as db, pytest.raises(UsageError, match="AUTOCOMMIT"):
        sql_fence.check(db.execution_options(isolation_level="AUTOCOMMIT"), "orders", 2)

    def silent(connection: object) -> bool:
        raise NotImplementedError

    monkeypatch.setattr(engine.dialect, "detect_autocommit_setting", silent)
    with engine.begin() as db, pytest.raises(UsageError, match="does not tell"):
        sql_fence.check(db, "orders", 2)
    assert _stored(engine) == [1]


# ---- not a connection


def test_async_and_blocking_connections_do_not_mix(sqlite_store: Store, sql_fence: SqlFence) -> None:
    engine = create_async_engine(_alchemy(sqlite_store, "+aiosqlite"))
    with pytest.raises(UsageError, match=r"await fence\.check_async"):
        sql_fence.check(engine.connect(), "orders", 1)  # type: ignore[call-overload]
    with closing(sqlite3.connect(sqlite_store.place)) as db:
        coroutine = sql_fence.check_async(db, "orders", 1)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"fence\.check\("):
            coroutine.send(None)
        coroutine = sql_fence.create_async(db)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"fence\.create\("):
            coroutine.send(None)


def test_non_connection_is_refused(sqlite_store: Store, sql_fence: SqlFence) -> None:
    engine = sqlalchemy.create_engine(_alchemy(sqlite_store))
    with closing(sqlite3.connect(sqlite_store.place)) as db:
        for other in (engine, db.cursor(), "orders", object()):
            with pytest.raises(UsageError, match="open connection"):
                sql_fence.check(other, "orders", 1)  # type: ignore[call-overload]
    for arguments in ({}, {"db": db, "using": "default"}):
        with pytest.raises(UsageError, match="either a connection, or using"):
            sql_fence.check(resource="orders", token=1, **arguments)  # type: ignore[call-overload]


def test_unsupported_database_is_refused_by_name(sql_fence: SqlFence) -> None:
    engine = sqlalchemy.create_mock_engine("mysql://", lambda *_: None)

    class Connection(sqlalchemy.Connection):
        def __init__(self) -> None:
            self.dialect = engine.dialect

    with pytest.raises(UsageError, match="postgresql and sqlite, not 'mysql'"):
        sql_fence.check(Connection(), "orders", 1)


def test_bad_arguments_are_refused_before_any_statement(sqlite_store: Store, sql_fence: SqlFence) -> None:
    with closing(sqlite3.connect(sqlite_store.place)) as db:
        resources: list[Any] = ["", "a\0b", 5, "x" * 513]
        for resource in resources:
            with pytest.raises(InvalidName):
                sql_fence.check(db, resource, 1)
        with pytest.raises(InvalidName, match="NUL"):
            sql_fence.check(db, "orders", 1, "a\0b")
        for token in (-1, 2**63):
            with pytest.raises(ValueError):
                sql_fence.check(db, "orders", token)
        with pytest.raises(TypeError):
            sql_fence.check(db, "orders", True)
        assert not db.in_transaction
