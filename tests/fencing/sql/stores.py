"""One transaction on each kind of connection behind one async interface, so that common tests run on each."""

from __future__ import annotations

import abc
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from typing import Any, Final, Literal

import aiosqlite
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from holdfast.fencing import SqlFence
from holdfast.fencing.rule import Lease

DialectName = Literal["postgresql", "sqlite"]


class Work(abc.ABC):
    """One open transaction."""

    #: The object that users pass to the fence.
    db: Any

    async def check(
        self, resource: str, token: int | Lease, owner: str | None = None, fence: SqlFence | None = None
    ) -> None:
        (fence or SqlFence()).check(self.db, resource, token, owner)

    async def create(self) -> None:
        SqlFence().create(self.db)

    @abc.abstractmethod
    async def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Returns the rows; none for a statement without rows."""


class AsyncWork(Work):
    async def check(
        self, resource: str, token: int | Lease, owner: str | None = None, fence: SqlFence | None = None
    ) -> None:
        await (fence or SqlFence()).check_async(self.db, resource, token, owner)

    async def create(self) -> None:
        await SqlFence().create_async(self.db)


class Store(abc.ABC):
    """Access to a database. ``place`` is a SQLite file, or what follows ``postgresql://``."""

    def __init__(self, place: str) -> None:
        self.place = place

    @abc.abstractmethod
    @asynccontextmanager
    def begin(self) -> AsyncIterator[Work]:
        """Opens a transaction, committed at the end of the block and rolled back by an exception."""

    async def run(self, statement: str) -> list[tuple[Any, ...]]:
        async with self.begin() as work:
            return await work.run(statement)


# ---- drivers


class _CursorWork(Work):
    """For DB-API connections, whose ``execute`` returns a cursor."""

    def __init__(self, db: Any) -> None:
        self.db = db

    async def run(self, statement: str) -> list[tuple[Any, ...]]:
        cursor = self.db.execute(statement)
        return cursor.fetchall() if cursor.description else []


class _AsyncCursorWork(AsyncWork):
    def __init__(self, db: Any) -> None:
        self.db = db

    async def run(self, statement: str) -> list[tuple[Any, ...]]:
        cursor = await self.db.execute(statement)
        return [tuple(row) for row in await cursor.fetchall()] if cursor.description else []


class SqliteStore(Store):
    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Work]:
        # Of many writers on a busy machine, one may wait for long: SQLite serves them in no order.
        with closing(sqlite3.connect(self.place, timeout=60)) as db, db:
            yield _CursorWork(db)


class AiosqliteStore(Store):
    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Work]:
        async with aiosqlite.connect(self.place) as db:
            yield _AsyncCursorWork(db)
            await db.commit()


class PsycopgStore(Store):
    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Work]:
        with psycopg.connect(f"postgresql://{self.place}") as db:
            yield _CursorWork(db)


class AsyncPsycopgStore(Store):
    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Work]:
        async with await psycopg.AsyncConnection.connect(f"postgresql://{self.place}") as db:
            yield _AsyncCursorWork(db)


# ---- SQLAlchemy


class _AlchemyWork(Work):
    def __init__(self, db: sqlalchemy.Connection | Session) -> None:
        self.db = db

    async def run(self, statement: str) -> list[tuple[Any, ...]]:
        return _rows(self.db.execute(sqlalchemy.text(statement)))


class _AsyncAlchemyWork(AsyncWork):
    def __init__(self, db: AsyncConnection | AsyncSession) -> None:
        self.db = db

    async def run(self, statement: str) -> list[tuple[Any, ...]]:
        return _rows(await self.db.execute(sqlalchemy.text(statement)))


def _rows(result: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in result.all()] if result.returns_rows else []


class _AlchemyStore(Store):
    def __init__(self, place: str, driver: str, *, session: bool) -> None:
        super().__init__(place)
        self.url = f"{driver}://{'/' if driver.startswith('sqlite') else ''}{place}"
        self._session = session


class AlchemyStore(_AlchemyStore):
    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Work]:
        engine = sqlalchemy.create_engine(self.url, poolclass=NullPool)
        with Session(engine) if self._session else engine.connect() as db, db.begin():
            yield _AlchemyWork(db)


class AsyncAlchemyStore(_AlchemyStore):
    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Work]:
        engine = create_async_engine(self.url, poolclass=NullPool)
        async with AsyncSession(engine) if self._session else engine.connect() as db, db.begin():
            yield _AsyncAlchemyWork(db)


#: Kinds by dialect.
KINDS: Final[dict[str, DialectName]] = {
    "sqlite3": "sqlite",
    "aiosqlite": "sqlite",
    "psycopg": "postgresql",
    "psycopg-async": "postgresql",
    "alchemy-sqlite": "sqlite",
    "alchemy-postgresql": "postgresql",
    "alchemy-session-sqlite": "sqlite",
    "alchemy-session-postgresql": "postgresql",
    "alchemy-async-sqlite": "sqlite",
    "alchemy-async-postgresql": "postgresql",
    "alchemy-async-session-sqlite": "sqlite",
    "alchemy-async-session-postgresql": "postgresql",
}


def open_store(kind: str, place: str) -> Store:
    plain: dict[str, Callable[[str], Store]] = {
        "sqlite3": SqliteStore, "aiosqlite": AiosqliteStore,
        "psycopg": PsycopgStore, "psycopg-async": AsyncPsycopgStore,
    }  # fmt: skip
    if kind in plain:
        return plain[kind](place)
    driver = "postgresql+psycopg"
    if KINDS[kind] == "sqlite":
        driver = "sqlite+aiosqlite" if "async" in kind else "sqlite"
    return (AsyncAlchemyStore if "async" in kind else AlchemyStore)(place, driver, session="session" in kind)
