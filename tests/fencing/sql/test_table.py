"""The table of the fence: its name, its columns for each way of creating it, and the rights that a check needs."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.pool import NullPool

from holdfast.errors import EngineRefused, StaleToken, UsageError
from holdfast.fencing import SqlFence
from tests.fencing.sql.stores import Store
from tests.servers.postgres import PostgresServer


@pytest.mark.parametrize("name", ["", "a b", "1a", 'a"b', "a.b.c", "a.", ".a", "a;b", "é", "x" * 64, "a\n", None, 5])
def test_invalid_table_name_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="letters, digits and underscores"):
        SqlFence(name)


@pytest.mark.parametrize("dialect", ["mysql", "", "PostgreSQL"])
def test_ddl_for_an_unsupported_database_is_refused(dialect: str) -> None:
    with pytest.raises(UsageError, match="postgresql and sqlite"):
        SqlFence().ddl(dialect)


def test_ddl_creates_the_table() -> None:
    assert SqlFence("app.Fence").ddl("postgresql") == (
        'CREATE TABLE IF NOT EXISTS "app"."Fence" (\n'
        '    resource text COLLATE "C" NOT NULL PRIMARY KEY,\n'
        "    token bigint NOT NULL,\n"
        "    owner text\n"
        ")"
    )
    assert SqlFence().ddl("sqlite") == (
        'CREATE TABLE IF NOT EXISTS "holdfast_fence" (\n'
        "    resource TEXT NOT NULL PRIMARY KEY,\n"
        "    token INTEGER NOT NULL,\n"
        "    owner TEXT\n"
        ")"
    )


def test_keywords_case_and_schemas_are_kept(postgres_server: PostgresServer) -> None:
    with postgres_server.connect() as db:
        db.execute('CREATE SCHEMA IF NOT EXISTS "Select"')
        for name in ("order", "Order", "Select.table"):
            fence = SqlFence(name)
            fence.create(db)
            fence.check(db, "orders", 1, name)
        assert db.execute('SELECT owner FROM "Select"."table"').fetchall() == [("Select.table",)]
        db.rollback()


def test_sqlalchemy_table_is_identical_on_postgresql(postgres_server: PostgresServer) -> None:
    described = (
        "SELECT column_name, data_type, is_nullable, collation_name FROM information_schema.columns "
        "WHERE table_name = 'holdfast_fence' ORDER BY ordinal_position"
    )
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://{postgres_server.location}", poolclass=NullPool)
    metadata = sqlalchemy.MetaData()
    table = SqlFence().table(metadata)
    assert SqlFence().table(metadata) is table
    metadata.create_all(engine)
    with postgres_server.connect(autocommit=True) as db:
        columns = db.execute(described).fetchall()
        with db.transaction():
            SqlFence().check(db, "orders", 2**62)
        db.execute("DROP TABLE holdfast_fence")
        SqlFence().create(db)
        assert db.execute(described).fetchall() == columns
        assert [column[0] for column in columns] == ["resource", "token", "owner"]


def test_sqlalchemy_table_is_identical_on_sqlite(tmp_path: Path) -> None:
    metadata = sqlalchemy.MetaData()
    SqlFence().table(metadata)
    metadata.create_all(sqlalchemy.create_engine(f"sqlite:///{tmp_path}/data.db", poolclass=NullPool))
    with closing(sqlite3.connect(tmp_path / "data.db")) as db, closing(sqlite3.connect(":memory:")) as other:
        SqlFence().create(other)
        described = [column[1:] for column in db.execute("PRAGMA table_info(holdfast_fence)")]
        assert described == [column[1:] for column in other.execute("PRAGMA table_info(holdfast_fence)")]
        SqlFence().check(db, "orders", 1)


def test_table_in_a_schema_is_described_with_the_schema() -> None:
    metadata = sqlalchemy.MetaData()
    table = SqlFence("app.fence").table(metadata)
    assert (table.schema, table.name) == ("app", "fence")
    assert SqlFence("app.fence").table(metadata) is table


def test_check_needs_no_right_to_delete(postgres_server: PostgresServer, postgres_store: Store) -> None:
    fence = SqlFence()
    with postgres_server.connect() as db:
        db.execute("CREATE ROLE app")
        db.execute("GRANT USAGE ON SCHEMA public TO app")
        db.execute("GRANT SELECT, INSERT, UPDATE ON holdfast_fence TO app")
        db.execute("SET ROLE app")
        fence.check(db, "orders", 2)
        fence.check(db, "orders", 3)
        with pytest.raises(StaleToken):
            fence.check(db, "orders", 1)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute("DELETE FROM holdfast_fence")
        db.rollback()


def test_trigger_that_drops_the_row_admits_nothing(postgres_server: PostgresServer, postgres_store: Store) -> None:
    with postgres_server.connect() as db:
        db.execute("CREATE FUNCTION drop_it() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        db.execute("CREATE TRIGGER t BEFORE INSERT ON holdfast_fence FOR EACH ROW EXECUTE FUNCTION drop_it()")
        with pytest.raises(EngineRefused, match="The token was not accepted"):
            SqlFence().check(db, "orders", 1)
        db.rollback()


def test_importing_the_fence_imports_no_driver() -> None:
    code = (
        "import json, sys; from holdfast.fencing import SqlFence; SqlFence().ddl('sqlite'); "
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(json.loads(done.stdout))
    assert "holdfast" in loaded
    assert not loaded & {"sqlite3", "psycopg", "sqlalchemy", "django", "aiosqlite"}
