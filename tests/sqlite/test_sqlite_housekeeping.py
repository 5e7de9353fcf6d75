"""Housekeeping: files stay small, opening stays fast, and leftovers of dead processes are removed."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from pathlib import Path

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Found, Granted
from holdfast.engines.sqlite import liveness, opening, schema
from holdfast.engines.sqlite.keeper import SqliteKeeper
from holdfast.engines.sqlite.session import SqliteSession
from tests.sqlite.conftest import TIMEOUT, MakeSession
from tests.sqlite.worker import make_attempt


def rows(path: str) -> int:
    connection = sqlite3.connect(path)
    try:
        (count,) = connection.execute("SELECT count(*) FROM lock").fetchone()
        return int(count)
    finally:
        connection.close()


def reboot(path: str) -> None:
    """Simulates a reboot of the host: the file is from another boot, and all processes have ended."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE lock SET boot = 'earlier'")
    connection.execute("UPDATE meta SET value = 'earlier' WHERE key = 'boot'")
    connection.close()


def test_removal_of_old_names_keeps_pace_with_new_names(make_session: MakeSession, path: str) -> None:
    """Regression: at most 100 rows per second were removed, for any number of names in use."""
    session = make_session(token_ttl=0.0)
    kept = make_attempt("kept", 600.0)
    run(session.acquire(kept, TIMEOUT))
    for number in range(3000):
        attempt = make_attempt(f"name {number}")
        run(session.acquire(attempt, TIMEOUT))
        run(session.release(attempt, TIMEOUT))
    assert rows(path) < 1000
    assert run(session.renew(kept, 600.0, TIMEOUT)) == Found.OURS


def test_names_of_dead_processes_are_removed(make_session: MakeSession, path: str) -> None:
    session = make_session(token_ttl=0.0)
    for number in range(10):
        run(session.acquire(make_attempt(f"name {number}", 0.1), TIMEOUT))
    store = session.store(clock.now())
    store.run_housekeeping(clock.now() + 60.0)
    assert rows(path) == 0


def test_log_shrinks_again_after_a_frozen_reader(session: SqliteSession, path: str) -> None:
    run(session.ping(TIMEOUT))
    frozen = sqlite3.connect(path, isolation_level=None)

    def work(pairs: int) -> None:
        for _ in range(pairs):
            attempt = make_attempt("job")
            run(session.acquire(attempt, TIMEOUT))
            run(session.release(attempt, TIMEOUT))

    work(1)
    frozen.execute("BEGIN")
    frozen.execute("SELECT * FROM lock").fetchall()
    work(1000)
    assert os.path.getsize(path + "-wal") > schema.LOG_LIMIT, "the log cannot shrink while the reader is frozen"
    frozen.execute("COMMIT")
    frozen.close()
    work(300)
    assert os.path.getsize(path + "-wal") <= schema.LOG_LIMIT


def test_log_does_not_grow_with_many_processes_of_few_writes(make_session: MakeSession, path: str) -> None:
    keeper = make_session()
    run(keeper.ping(TIMEOUT))
    store = keeper.store(clock.now())
    for number in range(3000):  # like 3000 processes, none of which writes often enough to copy the log
        store._writes = 0
        store.write("UPDATE meta SET value = ? WHERE key = 'boot'", (str(number),))
    assert os.path.getsize(path + "-wal") > schema.LOG_LIMIT
    store.quiesce()
    store.resume()  # opens again
    for _ in range(2):
        run(keeper.ping(TIMEOUT))
        store.write("UPDATE meta SET value = ? WHERE key = 'boot'", (store.boot,))
    assert os.path.getsize(path + "-wal") <= schema.LOG_LIMIT


def test_locks_held_at_a_reboot_expire_from_the_list(make_session: MakeSession, path: str) -> None:
    session = make_session()
    for name in ("one", "two"):
        run(session.acquire(make_attempt(name, 0.2), TIMEOUT))
    run(session.close())
    reboot(path)
    session = make_session()

    async def names() -> list[str]:
        return [name async for name in session.names("", TIMEOUT)]

    run(session.ping(TIMEOUT))
    run(BLOCKING.sleep_until(clock.now() + 0.25))  # their remaining ttl, counted from the first opening
    assert run(names()) == []
    assert run(session.inspect("one", TIMEOUT)).holders == ()


def test_inspecting_a_lock_of_another_boot_starts_its_expiry(session: SqliteSession, path: str) -> None:
    run(session.acquire(make_attempt("one", 0.2), TIMEOUT))
    run(session.acquire(make_attempt("two", 0.2), TIMEOUT))
    session.store(clock.now()).write("UPDATE lock SET boot = 'elsewhere'", ())

    async def names() -> list[str]:
        return [name async for name in session.names("t", TIMEOUT)]

    assert run(session.inspect("one", TIMEOUT)).holders != ()
    assert run(names()) == ["two"]
    run(BLOCKING.sleep_until(clock.now() + 0.25))
    assert run(session.inspect("one", TIMEOUT)).holders == ()
    assert run(names()) == []


@pytest.fixture
def many_names(make_session: MakeSession, path: str) -> list[str]:
    """A file of 60,000 names left by a killed process; returns the statements run when it is opened."""
    session = make_session()
    run(session.acquire(make_attempt("dead", 600.0), TIMEOUT))
    session.store(clock.now()).write(
        """
        INSERT INTO lock (name, process, boot, expires, ttl, token, since, description)
        WITH RECURSIVE k (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 60000)
        SELECT 'name ' || i, '', 'earlier', 1, 1, i, strftime('%s') * 1000000, zeroblob(78) FROM k
        """,
        (),
    )
    run(session.close())  # with a lock still held, as after a kill
    return []


@pytest.mark.parametrize("after", ["a crash", "a boot"])
def test_cost_of_opening_does_not_grow_with_the_number_of_names(
    make_session: MakeSession, path: str, many_names: list[str], monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """Regression: the whole table was read after a crash, and the whole file was checked after a boot."""
    if after == "a boot":
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("UPDATE meta SET value = 'earlier' WHERE key = 'boot'")
        connection.close()
    assert os.path.getsize(path) > opening._CHECKED_PAGES * 1024
    steps, real = [0], schema.open_connection

    def counted(path: str) -> sqlite3.Connection:
        connection = real(path)

        def count() -> int:
            steps[0] += 1000
            return 0

        connection.set_progress_handler(count, 1000)
        connection.set_trace_callback(many_names.append)
        return connection

    monkeypatch.setattr(schema, "open_connection", counted)
    run(make_session().ping(TIMEOUT))
    assert steps[0] < 150_000, "instructions of SQLite's virtual machine"
    assert many_names
    assert not [statement for statement in many_names if "_check(" in statement]


def test_starting_process_cannot_lock_a_file_being_swept(
    make_session: MakeSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has created its file but not locked it yet, so it looks dead. Regression: it locked the file after the probe
    and wrote rows, and the sweep freed them."""
    session = make_session()
    run(session.ping(TIMEOUT))
    run(session.close())
    starting = Path(path + ".d") / ("0" * 32)
    starting.touch(0o600)
    os.utime(starting, (0.0, 0.0))
    real, locked = liveness.remove, []

    def remove(directory: int, name: str) -> None:
        if name == starting.name:
            with starting.open("r+b") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    locked.append(True)
                except BlockingIOError:
                    locked.append(False)
        real(directory, name)

    monkeypatch.setattr(liveness, "remove", remove)
    run(make_session().ping(TIMEOUT))
    assert locked == [False]


def test_sweep_keeps_a_recently_created_file(make_session: MakeSession, path: str) -> None:
    session = make_session()
    run(session.ping(TIMEOUT))
    (Path(path + ".d") / ("0" * 32)).touch(0o600)
    session.store(clock.now())._sweep_directory()
    assert (Path(path + ".d") / ("0" * 32)).exists()


def test_sockets_of_displaced_processes_are_swept(make_session: MakeSession, path: str) -> None:
    session = make_session()
    run(session.ping(TIMEOUT))
    (Path(path + ".d") / ("0" * 32 + ".pulse")).touch(0o600)
    session.store(clock.now())._sweep_directory()
    assert not (Path(path + ".d") / ("0" * 32 + ".pulse")).exists()
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Granted)


def test_batch_of_withdrawals_is_a_few_statements_and_wakes_waiters(
    session: SqliteSession, keeper: SqliteKeeper
) -> None:
    held = [make_attempt(f"name {number}") for number in range(300)]
    for attempt in held:
        run(session.acquire(attempt, TIMEOUT))
    gone, stolen, waiter = make_attempt("never"), make_attempt("name 1"), make_attempt("name 2")
    contender = session.contender(waiter, TIMEOUT)
    run(contender.wait(clock.now() + 0.01))
    bell = contender._wakeup
    assert bell is not None
    connection = session.store(clock.now())._connection
    assert connection is not None
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    answers = run(keeper.withdraw([*held, gone, stolen], TIMEOUT))
    connection.set_trace_callback(None)
    assert answers == [Found.OURS] * 300 + [Found.GONE] * 2
    assert len(set(statements)) < 20  # a trigger shows the statement that has caused it once more, for each row
    assert bell.drain() == [b""]
    assert isinstance(run(session.acquire(waiter, TIMEOUT)), Granted)
    contender.abandon()
    assert run(keeper.withdraw(held[3:20], TIMEOUT)) == [Found.GONE] * 17


def test_batch_of_withdrawals_leaves_no_queue_place(session: SqliteSession, keeper: SqliteKeeper) -> None:
    holders = [make_attempt(f"name {number}") for number in range(10)]
    waiters = [make_attempt(f"name {number}") for number in range(10)]
    for holder, waiter in zip(holders, waiters, strict=True):
        run(session.acquire(holder, TIMEOUT))
        contender = session.contender(waiter, TIMEOUT)
        run(contender.wait(clock.now()))
        contender.abandon()
    assert run(keeper.withdraw(waiters, TIMEOUT)) == [Found.STOLEN] * 10
    assert [run(session.inspect(attempt.claim.name, TIMEOUT)).waiters for attempt in holders] == [0] * 10


def test_a_batch_of_renewals_tells_each_attempt_apart(session: SqliteSession, keeper: SqliteKeeper) -> None:
    held = [make_attempt(f"name {number}", 10.0) for number in range(200)]
    for attempt in held:
        run(session.acquire(attempt, TIMEOUT))
    assert run(keeper.renew(held, 60.0, TIMEOUT)) == [Found.OURS] * 200
    assert (run(session.inspect("name 199", TIMEOUT)).remaining or 0.0) > 50.0
    run(session.release(held[7], TIMEOUT))
    other = make_attempt("name 8")
    assert run(keeper.renew([*held[:8], other, *held[9:20]], 60.0, TIMEOUT)) == [
        *[Found.OURS] * 7, Found.GONE, Found.STOLEN, *[Found.OURS] * 11,
    ]  # fmt: skip
