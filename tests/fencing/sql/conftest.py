"""A store of each kind on an empty database with the table of the fence."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.fencing import SqlFence
from tests.fencing.sql.stores import KINDS, PsycopgStore, SqliteStore, Store, open_store
from tests.servers.postgres import PostgresServer


@pytest.fixture(
    params=[
        pytest.param(kind, marks=[pytest.mark.needs_postgres] if dialect == "postgresql" else [])
        for kind, dialect in KINDS.items()
    ]
)
def empty_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Parametrized over all kinds, on a database without any table."""
    kind: str = request.param
    if KINDS[kind] == "postgresql":
        return open_store(kind, request.getfixturevalue("postgres_server").location)
    return open_store(kind, str(tmp_path / "data.db"))


@pytest.fixture
def store(empty_store: Store) -> Store:
    """Parametrized over all kinds."""
    asyncio.run(_create(empty_store))
    return empty_store


@pytest.fixture
def postgres_store(postgres_server: PostgresServer) -> Store:
    with postgres_server.connect() as db:
        SqlFence().create(db)
    return PsycopgStore(postgres_server.location)


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Store:
    store = SqliteStore(str(tmp_path / "data.db"))
    with closing(sqlite3.connect(store.place)) as db:
        SqlFence().create(db)
    return store


async def _create(store: Store) -> None:
    async with store.begin() as work:
        await work.create()


@pytest.fixture
def sql_fence() -> SqlFence:
    return SqlFence()
