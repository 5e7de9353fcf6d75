"""User data in a lock file survives a power cut, and a damaged file that has some is never replaced."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import Granted, RequestFailed
from holdfast.engines.registers import Cell, RegisterKey
from holdfast.engines.sqlite import schema
from holdfast.engines.sqlite.session import SqliteSession
from holdfast.errors import EngineRefused
from tests.sqlite.conftest import TIMEOUT, MakeSession, Worker
from tests.sqlite.worker import make_attempt

STATE = RegisterKey("job", "monitor", durable=True)
SCRATCH = RegisterKey("job", "condition:")


def put(session: SqliteSession, value: bytes, key: RegisterKey = STATE) -> None:
    """Write it as a monitor would write its first state."""
    version = run(session.registers.peek(key, TIMEOUT)).version
    assert run(session.registers.swap(key, version, value, TIMEOUT)).value == value


def got(session: SqliteSession, key: RegisterKey = STATE) -> bytes:
    return run(session.registers.peek(key, TIMEOUT)).value


def sync_level(session: SqliteSession) -> int:
    """The ``synchronous`` setting of the connection between two statements."""
    ((level,),) = session.store(clock.now()).read("PRAGMA synchronous", ())
    return int(level)


def traced(session: SqliteSession, action: Callable[[], object]) -> list[str]:
    """The statements that SQLite runs on the session's connection meanwhile."""
    ran: list[str] = []
    connection = session.store(clock.now())._connection
    assert connection is not None
    connection.set_trace_callback(lambda text: ran.append(" ".join(text.split())))
    action()
    connection.set_trace_callback(None)
    return ran


def test_store_of_user_data_waits_for_the_disk_and_other_writes_do_not(session: SqliteSession) -> None:
    put(session, b"0")
    ran = traced(session, lambda: put(session, b"1"))
    update = next(number for number, text in enumerate(ran) if text.startswith("UPDATE register"))
    assert ran[update - 1] == f"PRAGMA synchronous = {schema.COMMITS}"
    assert ran[update + 1] == f"PRAGMA synchronous = {schema.CHECKPOINTS}"
    ran = traced(session, lambda: put(session, b"1", SCRATCH))
    assert any(text.startswith("UPDATE register") for text in ran)
    assert not any("synchronous" in text for text in ran)


def test_file_without_user_data_is_never_synced(session: SqliteSession) -> None:
    put(session, b"x", SCRATCH)
    run(session.acquire(make_attempt("job"), TIMEOUT))
    assert sync_level(session) == 0


def test_process_that_has_had_the_file_open_syncs_its_next_checkpoint(
    session: SqliteSession, start_worker: Callable[[], Worker]
) -> None:
    """Without that, its checkpoint would move another process's confirmed state out of the log and not to the disk."""
    run(session.ping(TIMEOUT))
    assert sync_level(session) == 0
    start_worker().ask(do="add to register", name="job", times=1)
    for _ in range(100):
        attempt = make_attempt("other")
        run(session.acquire(attempt, TIMEOUT))
        run(session.release(attempt, TIMEOUT))
    assert sync_level(session) == 1


def test_first_user_data_waits_for_a_checkpoint_without_sync_of_another_process(
    session: SqliteSession, path: str
) -> None:
    run(session.ping(TIMEOUT))
    checkpoint = os.open(path + ".d", os.O_RDONLY)
    fcntl.flock(checkpoint, fcntl.LOCK_SH)
    with pytest.raises(RequestFailed):
        run(session.registers.swap(STATE, 0, b"x", 0.05))
    assert got(session) == b""
    os.close(checkpoint)
    put(session, b"x")


def test_state_survives_the_death_of_all_processes_and_the_loss_of_the_index(
    make_session: MakeSession, start_worker: Callable[[], Worker], path: str
) -> None:
    """After a power cut the log is there, since it was synced, and the index may be missing or empty."""
    worker = start_worker()
    worker.ask(do="add to register", name="job", times=3)
    worker.kill()
    assert os.path.getsize(path + "-wal") > 0, "the state is in the log"
    os.unlink(path + "-shm")
    assert got(make_session()) == b"3"


def damage(path: str) -> None:
    with open(path, "r+b") as file:
        file.seek(1024)
        file.write(os.urandom(os.path.getsize(path) - 1024))


def test_damaged_file_with_user_data_is_refused_and_kept(make_session: MakeSession, path: str) -> None:
    session = make_session()
    put(session, b"x")
    run(session.close())
    damage(path)
    with open(path, "rb") as file:
        content = file.read()
    for _ in range(2):
        with pytest.raises(EngineRefused, match="restore a backup") as refused:
            run(make_session().acquire(make_attempt("job"), TIMEOUT))
        assert path in str(refused.value)
    assert not os.path.exists(path + ".damaged")
    with open(path, "rb") as file:
        assert file.read() == content
    os.rename(path, path + ".mine")
    assert isinstance(run(make_session().acquire(make_attempt("job"), TIMEOUT)), Granted)


def test_emptied_file_with_user_data_is_refused(make_session: MakeSession, path: str) -> None:
    session = make_session()
    put(session, b"x")
    run(session.close())
    os.truncate(path, 0)
    with pytest.raises(EngineRefused, match="restore a backup"):
        run(make_session().ping(TIMEOUT))


def test_damaged_file_without_user_data_is_set_aside_as_before(make_session: MakeSession, path: str) -> None:
    session = make_session()
    put(session, b"x", SCRATCH)
    run(session.close())
    damage(path)
    session = make_session()
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Granted)
    assert os.path.exists(path + ".damaged")


def test_removed_file_with_user_data_is_reported(
    make_session: MakeSession, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = make_session()
    put(session, b"x")
    run(session.close())
    os.unlink(path)
    assert got(make_session()) == b""
    assert "was removed, with the state of monitors" in caplog.text


def test_mark_that_was_removed_with_its_directory_is_restored(make_session: MakeSession, path: str) -> None:
    session = make_session()
    put(session, b"x")
    run(session.close())
    shutil.rmtree(path + ".d")
    session = make_session()
    assert got(session) == b"x"
    assert sync_level(session) == 1
    run(session.close())
    damage(path)
    with pytest.raises(EngineRefused, match="restore a backup"):
        run(make_session().ping(TIMEOUT))


def test_backup_in_place_of_the_file_keeps_the_log_of_the_former_one(
    make_session: MakeSession, start_worker: Callable[[], Worker], path: str
) -> None:
    session = make_session()
    put(session, b"old")
    run(session.close())
    shutil.copy(path, path + ".backup")
    worker = start_worker()
    worker.ask(do="add to register", name="another", times=1)
    worker.kill()
    os.replace(path + ".backup", path)
    session = make_session()
    assert got(session) == b"old"
    assert got(session, RegisterKey("another", "monitor", durable=True)) == b""
    assert os.path.getsize(path + "-wal.displaced") > 0
    with contextlib.closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_store_into_a_file_that_was_removed_is_not_confirmed(session: SqliteSession, path: str) -> None:
    put(session, b"x")
    os.unlink(path)
    assert run(session.registers.swap(STATE, 1, b"y", TIMEOUT)) == Cell()
