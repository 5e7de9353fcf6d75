"""Leases of read locks at a SqlFence, on both databases."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StaleToken, UsageError
from holdfast.fencing import SqlFence
from tests.servers.postgres import PostgresServer
from tests.support.readers import Reader


def _stored(db: Any) -> Any:
    return db.execute("SELECT token, owner FROM holdfast_fence WHERE resource = 'r'").fetchone()


def _agrees(db: Any) -> None:
    fence = SqlFence()
    fence.create(db)
    fence.check(db, "r", Reader(5))
    assert _stored(db) is None
    fence.check(db, "r", 10, "writer")
    for token in (10, 11):
        fence.check(db, "r", Reader(token))
    with pytest.raises(StaleToken) as refused:
        fence.check(db, "r", Reader(9))
    assert (refused.value.token, refused.value.seen) == (9, 10)
    assert tuple(_stored(db)) == (10, "writer")
    fence.check(db, "r", 10, "writer")


def test_sqlite_reader_passes_if_it_is_not_older_and_is_not_stored() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        _agrees(db)


@pytest.mark.needs_postgres
def test_postgresql_reader_passes_if_it_is_not_older_and_is_not_stored(postgres_server: PostgresServer) -> None:
    with postgres_server.connect() as db:
        _agrees(db)
        db.rollback()


def test_sqlite_reader_keeps_writers_away_until_its_transaction_ends(tmp_path: Path) -> None:
    path, fence = tmp_path / "data.db", SqlFence()
    with closing(sqlite3.connect(path)) as reader, closing(sqlite3.connect(path, timeout=0)) as writer:
        fence.create(reader)
        fence.check(reader, "r", 10, "writer")
        reader.commit()
        fence.check(reader, "r", Reader(10))
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            fence.check(writer, "r", 11, "writer")
        reader.commit()
        fence.check(writer, "r", 11, "writer")


@pytest.mark.needs_postgres
def test_postgresql_readers_share_the_lock_and_keep_writers_away(postgres_server: PostgresServer) -> None:
    import psycopg

    fence = SqlFence()
    with postgres_server.connect() as one, postgres_server.connect() as two, postgres_server.connect() as writer:
        fence.create(one)
        fence.check(one, "shared", 10, "writer")
        one.commit()
        for db in (one, two):
            fence.check(db, "shared", Reader(10))
        writer.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            fence.check(writer, "shared", 11, "writer")
        writer.rollback()
        for db in (one, two):
            db.rollback()
        fence.check(writer, "shared", 11, "writer")
        writer.rollback()


def test_reader_needs_a_transaction_too() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        SqlFence().create(db)
        with pytest.raises(UsageError, match="autocommit"):
            SqlFence().check(db, "r", Reader(1))
