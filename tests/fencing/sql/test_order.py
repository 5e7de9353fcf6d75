"""Two concurrent transactions: the row is locked until COMMIT in either order. Locks enforce the order of steps."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

from holdfast.errors import StaleToken
from holdfast.fencing import SqlFence
from tests.fencing.sql.stores import Store
from tests.servers.postgres import PostgresServer

Pair = tuple[psycopg.Connection[Any], psycopg.Connection[Any]]
WITHIN = 30


@pytest.fixture
def stock(postgres_server: PostgresServer, postgres_store: Store) -> PostgresServer:
    """A table with a stock of ten apples."""
    with postgres_server.connect() as db:
        db.execute("CREATE TABLE stock (amount integer)")
        db.execute("INSERT INTO stock VALUES (10)")
    return postgres_server


@pytest.fixture
def pair(stock: PostgresServer) -> Iterator[Pair]:
    """Two connections, of the old holder (token 1) and of the new holder (token 2)."""
    with stock.connect() as old, stock.connect() as new:
        yield old, new


def _old(db: psycopg.Connection[Any]) -> None:
    SqlFence().check(db, "stock", 1, "old")


def _new(db: psycopg.Connection[Any]) -> None:
    SqlFence().check(db, "stock", 2, "new")


def _amount(db: psycopg.Connection[Any]) -> int:
    row = db.execute("SELECT amount FROM stock").fetchone()
    assert row is not None
    return int(row[0])


def _blocked(
    server: PostgresServer, db: psycopg.Connection[Any], check: Callable[[psycopg.Connection[Any]], None]
) -> Future[None]:
    """Starts ``check`` on a thread and returns once it waits for a lock of another transaction."""
    pool = ThreadPoolExecutor(1)
    waiting = pool.submit(check, db)
    pool.shutdown(wait=False)
    server.wait_until_blocked(db.info.backend_pid)
    assert not waiting.done()
    return waiting


@pytest.fixture(params=["first use", "row exists"])
def _earlier_use(request: pytest.FixtureRequest, stock: PostgresServer) -> None:
    if request.param == "row exists":
        with stock.connect() as db:
            SqlFence().check(db, "stock", 0, "earlier")


@pytest.mark.usefixtures("_earlier_use")
def test_new_holder_waits_for_the_old_transaction_and_reads_its_result(stock: PostgresServer, pair: Pair) -> None:
    old, new = pair
    _old(old)
    old.execute("UPDATE stock SET amount = 9")
    waiting = _blocked(stock, new, _new)
    old.commit()
    waiting.result(WITHIN)
    assert _amount(new) == 9
    new.commit()
    with pytest.raises(StaleToken):
        _old(old)


@pytest.mark.usefixtures("_earlier_use")
def test_old_holder_waits_for_the_new_transaction_and_is_refused(stock: PostgresServer, pair: Pair) -> None:
    old, new = pair
    _new(new)
    waiting = _blocked(stock, old, _old)
    new.execute("UPDATE stock SET amount = 7")
    new.commit()
    with pytest.raises(StaleToken) as refused:
        waiting.result(WITHIN)
    assert (refused.value.token, refused.value.seen) == (1, 2)
    old.rollback()
    assert _amount(old) == 7


@pytest.mark.usefixtures("_earlier_use")
def test_old_holder_is_admitted_after_the_new_transaction_is_rolled_back(stock: PostgresServer, pair: Pair) -> None:
    old, new = pair
    _new(new)
    new.execute("UPDATE stock SET amount = 7")
    waiting = _blocked(stock, old, _old)
    new.rollback()
    waiting.result(WITHIN)
    assert _amount(old) == 10  # the rolled-back update has no effect
    old.commit()


async def test_async_check_waits_and_can_be_cancelled(stock: PostgresServer) -> None:
    fence = SqlFence()
    connect = psycopg.AsyncConnection.connect
    async with await connect(stock.url) as old, await connect(stock.url) as new:
        await fence.check_async(new, "stock", 2, "new")
        waiting = asyncio.create_task(fence.check_async(old, "stock", 1, "old"))
        await asyncio.to_thread(stock.wait_until_blocked, old.info.backend_pid)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await old.rollback()
        await new.commit()
        with pytest.raises(StaleToken):
            await fence.check_async(old, "stock", 1, "old")
        await old.rollback()


@pytest.mark.parametrize("isolation", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
@pytest.mark.parametrize("first", ["old", "new"])
def test_serialization_failure_of_either_side_propagates_unchanged(
    stock: PostgresServer, pair: Pair, isolation: IsolationLevel, first: str
) -> None:
    old, new = pair
    old.isolation_level = new.isolation_level = isolation
    (leader, leads), (follower, follows) = [(old, _old), (new, _new)] if first == "old" else [(new, _new), (old, _old)]
    leads(leader)
    waiting = _blocked(stock, follower, follows)
    leader.commit()
    with pytest.raises(psycopg.errors.SerializationFailure):
        waiting.result(WITHIN)
    follower.rollback()
    if first == "old":
        follows(follower)  # the retry of the caller
    else:
        with pytest.raises(StaleToken):
            follows(follower)


@pytest.mark.parametrize("isolation", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
def test_snapshot_older_than_the_new_commit_admits_nothing(pair: Pair, isolation: IsolationLevel) -> None:
    old, new = pair
    old.isolation_level = isolation
    assert _amount(old) == 10  # takes the snapshot
    _new(new)
    new.commit()
    with pytest.raises(psycopg.errors.SerializationFailure):
        _old(old)


def test_lock_timeout_bounds_the_wait(pair: Pair) -> None:
    old, new = pair
    _old(old)
    new.execute("SET LOCAL lock_timeout = '50ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        _new(new)


def test_holder_frozen_inside_its_transaction_is_ended_by_the_server_timeout(stock: PostgresServer, pair: Pair) -> None:
    old, new = pair
    _old(old)
    old.execute("UPDATE stock SET amount = 9")
    waiting = _blocked(stock, new, _new)
    old.execute("SET idle_in_transaction_session_timeout = '50ms'")  # the session is idle after this statement
    waiting.result(WITHIN)  # the server has ended the session of the old holder
    assert _amount(new) == 10
    new.commit()
    with pytest.raises((psycopg.errors.IdleInTransactionSessionTimeout, psycopg.OperationalError)):
        old.commit()


# ---- why the check comes first


def test_read_before_the_check_loses_an_update_at_read_committed(pair: Pair) -> None:
    old, new = pair
    amount = _amount(new)  # before the check
    _old(old)
    old.execute("UPDATE stock SET amount = amount - 1")
    old.commit()
    _new(new)
    new.execute("UPDATE stock SET amount = %s", [amount - 3])
    new.commit()
    assert _amount(old) == 7  # both committed; the update of the old holder is lost


def test_check_before_the_first_read_loses_no_update(stock: PostgresServer, pair: Pair) -> None:
    old, new = pair
    _new(new)
    amount = _amount(new)
    waiting = _blocked(stock, old, _old)
    new.execute("UPDATE stock SET amount = %s", [amount - 3])
    new.commit()
    with pytest.raises(StaleToken):
        waiting.result(WITHIN)
    assert _amount(new) == 7


def test_write_after_rollback_to_a_savepoint_before_the_check_is_unprotected(pair: Pair) -> None:
    old, new = pair
    old.execute("SAVEPOINT before")
    _old(old)
    old.execute("ROLLBACK TO SAVEPOINT before")
    _new(new)  # does not wait: the row lock was released with the savepoint
    new.commit()


# ---- SQLite: one writer at a time


def _connect(store: Store) -> sqlite3.Connection:
    return sqlite3.connect(store.place, timeout=0)


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_sqlite_has_one_checked_transaction_at_a_time(sqlite_store: Store, journal: str) -> None:
    fence = SqlFence()
    with closing(_connect(sqlite_store)) as old, closing(_connect(sqlite_store)) as new:
        old.execute(f"PRAGMA journal_mode = {journal}")
        fence.check(new, "stock", 2, "new")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            fence.check(old, "stock", 1, "old")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            fence.check(old, "another resource", 1, "old")  # one lock for the whole file
        new.commit()
        with pytest.raises(StaleToken):
            fence.check(old, "stock", 1, "old")


def test_sqlite_refuses_a_check_after_an_outdated_read(sqlite_store: Store, tmp_path: Path) -> None:
    fence = SqlFence()
    with closing(_connect(sqlite_store)) as old, closing(_connect(sqlite_store)) as new:
        old.execute("PRAGMA journal_mode = wal")
        old.execute("BEGIN")
        assert old.execute("SELECT count(*) FROM holdfast_fence").fetchone() == (0,)
        fence.check(new, "stock", 1, "new")
        new.commit()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            fence.check(old, "stock", 2, "old")  # its token is newer, but the data it read is outdated
