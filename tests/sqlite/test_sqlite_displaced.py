"""Files removed or replaced while processes lock in them: two holders at most until the next renewal, no error for
callers, and locking continues."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import ALL_NAMES, Busy, Found, Granted
from holdfast.engines.sqlite import anchor
from holdfast.engines.sqlite.keeper import SqliteKeeper
from holdfast.engines.sqlite.session import SqliteSession
from holdfast.errors import EngineRefused
from tests.sqlite.conftest import TIMEOUT, MakeSession, Worker
from tests.sqlite.worker import make_attempt
from tests.support.forking import in_a_child
from tests.support.waiting import eventually

StartWorker = Callable[[], Worker]
TTL = 1.5

come_and_go = [sys.executable, "-c", "import holdfast, sys; holdfast.connect('sqlite:' + sys.argv[1]).ping()"]
linux_only = pytest.mark.skipif(not anchor._LINUX, reason="without locks of open files it is only noticed")


def remove(*suffixes: str) -> Callable[[str], None]:
    def displace(path: str) -> None:
        for suffix in suffixes:
            # A process that has noticed the first removal may have closed its connection, which removes the others.
            Path(path + suffix).unlink(missing_ok=suffix != suffixes[0])

    return displace


def replace_by_copy(path: str) -> None:
    shutil.copy(path, path + ".copy")
    os.replace(path + ".copy", path)


def restore_directory(path: str) -> None:
    """Restores a fresh backup. It has no sockets; it has liveness files, which no process has locked."""
    directory = os.path.dirname(path)
    shutil.copytree(directory, directory + ".backup", ignore=shutil.ignore_patterns("*.pulse", "*.doze-*", "*.wait-*"))
    os.rename(directory, directory + ".old")
    os.rename(directory + ".backup", directory)


def read_and_close(path: str) -> None:
    """A backup in the process of the holder drops SQLite's locks; then another process opens and closes the file."""
    for name in (path, path + "-wal", path + "-shm"):
        with open(name, "rb") as file:
            file.read(1)
    subprocess.run([*come_and_go, path], check=True)


def remove_private_directory(path: str) -> None:
    # Renamed first, so that no file is created by its path during the removal. A process that has it open may still
    # create its socket in it, and then the empty directory stays.
    os.rename(path + ".d", path + ".gone")
    shutil.rmtree(path + ".gone", ignore_errors=True)


def remove_directory(path: str) -> None:
    os.rename(os.path.dirname(path), os.path.dirname(path) + ".gone")
    shutil.rmtree(os.path.dirname(path) + ".gone", ignore_errors=True)


def move_directory(path: str) -> None:
    os.rename(os.path.dirname(path), os.path.dirname(path) + ".elsewhere")


def empty_in_place(path: str) -> None:
    os.truncate(path, 0)


DISPLACEMENTS: dict[str, Callable[[str], None]] = {
    "database removed": remove(""),
    "log and index removed": remove("-wal", "-shm"),
    "log removed": remove("-wal"),
    "index removed": remove("-shm"),
    "all three removed": remove("", "-wal", "-shm"),
    "database replaced by a copy": replace_by_copy,
    "read in the holder's process": read_and_close,
    "private directory removed": remove_private_directory,
    "directory removed": remove_directory,
    "directory moved": move_directory,
    "directory restored from a backup": restore_directory,
}
every_displacement = pytest.mark.parametrize("displace", DISPLACEMENTS.values(), ids=DISPLACEMENTS.keys())


@pytest.fixture
def locks(path: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(f"sqlite:{path}", ttl=TTL) as locks:
        locks.ping()
        yield locks


def assert_locking_continues(locks: holdfast.Client, rival: Worker, path: str) -> None:
    """Both processes can lock and exclude each other, and the file is intact."""
    with locks.lock("job", timeout=10.0):
        assert rival.ask(do="acquire", name="job")["token"] is None
    assert rival.ask(do="acquire", name="job", timeout=10.0)["token"] is not None
    assert locks.lock("job").try_acquire() is None
    assert rival.ask(do="release", name="job")["found"] == "OURS"
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


@every_displacement
def test_files_displaced_before_the_acquire(
    locks: holdfast.Client, path: str, start_worker: StartWorker, displace: Callable[[str], None]
) -> None:
    displace(path)
    rival = start_worker()
    assert rival.ask(do="acquire", name="job")["token"] is not None
    assert locks.lock("job").try_acquire() is None, "two holders"
    assert rival.ask(do="release", name="job")["found"] == "OURS"
    assert_locking_continues(locks, rival, path)


@every_displacement
def test_files_displaced_between_acquire_and_renewal(
    locks: holdfast.Client, path: str, start_worker: StartWorker, displace: Callable[[str], None]
) -> None:
    lease = locks.lock("job").acquire()
    displace(path)
    rival = start_worker()
    taken = rival.ask(do="acquire", name="job")["token"] is not None
    try:
        lease.renew()
    except holdfast.LockLost:
        assert lease.lost_reason in ("broken", "stolen")
    assert not (taken and lease.held), "two holders, after the renewal"
    if taken:
        assert rival.ask(do="release", name="job")["found"] == "OURS"
    if lease.held:
        lease.release()
    assert_locking_continues(locks, rival, path)


@every_displacement
def test_files_displaced_between_renewal_and_release(
    locks: holdfast.Client, path: str, start_worker: StartWorker, displace: Callable[[str], None]
) -> None:
    lease = locks.lock("job").acquire()
    lease.renew()
    displace(path)
    rival = start_worker()
    taken = rival.ask(do="acquire", name="job")["token"] is not None
    if taken:
        with pytest.raises(holdfast.LockLost):
            lease.release()
        assert rival.ask(do="release", name="job")["found"] == "OURS"
    else:
        try:
            lease.release()
        except holdfast.LockLost:
            assert lease.lost_reason == "broken"
    assert_locking_continues(locks, rival, path)


@every_displacement
def test_files_displaced_while_waiting(
    locks: holdfast.Client, path: str, start_worker: StartWorker, displace: Callable[[str], None]
) -> None:
    rival = start_worker()
    assert rival.ask(do="acquire", name="job", ttl=TTL)["token"] is not None
    outcome: list[holdfast.Lease | Exception] = []

    def wait() -> None:
        try:
            outcome.append(locks.lock("job").acquire(timeout=20.0))
        except Exception as error:
            outcome.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    eventually(lambda: locks.inspect("job").waiters == 1, 5.0, "a waiter is queued")
    displace(path)
    if rival.ask(do="renew", name="job", ttl=TTL)["found"] == "OURS":
        assert not outcome, "two holders"
        rival.ask(do="release", name="job")
    waiter.join(20.0)
    assert isinstance(outcome[0], holdfast.Lease), outcome
    assert rival.ask(do="renew", name="job")["found"] in ("GONE", "STOLEN")
    outcome[0].release()
    assert_locking_continues(locks, rival, path)


@pytest.mark.parametrize("what", [("",), ("-wal",), ("-shm",), ("-wal", "-shm"), ("", "-wal", "-shm")], ids=" ".join)
def test_files_removed_under_load_crash_no_process_and_raise_no_error(
    path: str, start_worker: StartWorker, what: tuple[str, ...]
) -> None:
    """Regression: SIGBUS, "not a database", "damaged"."""
    workers = [start_worker() for _ in range(3)]
    for worker in workers:
        worker.send(do="hammer", name="job", seconds=1.0)
    for _ in range(4):
        time.sleep(0.2)  # the workers lock meanwhile
        for suffix in what:
            Path(path + suffix).unlink(missing_ok=True)
    answers = [worker.answer() for worker in workers]
    assert [answer["errors"] for answer in answers] == [[], [], []]
    assert all(answer["grants"] for answer in answers)


@linux_only
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_reading_the_files_in_the_process_of_the_holder_loses_no_lease(
    make_session: MakeSession, path: str, start_worker: StartWorker, suffix: str
) -> None:
    session, attempt = make_session(), make_attempt("job", 600.0)
    run(session.acquire(attempt, TIMEOUT))
    with open(path + suffix, "rb"):
        pass
    subprocess.run([*come_and_go, path], check=True)
    assert {"locks.db-wal", "locks.db-shm"} <= set(os.listdir(os.path.dirname(path)))
    assert start_worker().ask(do="acquire", name="job")["token"] is None
    assert run(session.renew(attempt, 600.0, TIMEOUT)) == Found.OURS


def test_last_process_to_close_removes_log_and_index(make_session: MakeSession, path: str) -> None:
    session = make_session()
    run(session.ping(TIMEOUT))
    run(session.close())
    assert set(os.listdir(os.path.dirname(path))) == {"locks.db", "locks.db.d"}


def test_displaced_store_does_not_copy_its_log_into_the_new_file(make_session: MakeSession, path: str) -> None:
    """Neither a write nor close may do that: the pages would overwrite those of other processes."""
    session = make_session()
    for number in range(50):
        run(session.acquire(make_attempt(f"old {number}"), TIMEOUT))
    store = session.store(clock.now())
    remove("-wal", "-shm")(path)
    before = Path(path).read_bytes()
    store.look_at = clock.now() + 60.0  # disables its own periodic check
    store._writes = 0
    for number in range(50):
        store.write("UPDATE lock SET ttl = ? WHERE name = ?", (number, f"old {number}"))
    store.abandon()
    assert Path(path).read_bytes() == before
    assert isinstance(run(session.acquire(make_attempt("new"), TIMEOUT)), Granted)


def test_watchdog_verifies_all_leases_after_its_store_was_displaced(
    session: SqliteSession, keeper: SqliteKeeper, path: str
) -> None:
    wakeup = BLOCKING.wakeup()
    try:
        run(keeper.wait_for_hints(clock.now(), wakeup))  # opens its socket
        assert run(keeper.wait_for_hints(clock.now(), wakeup)) != ALL_NAMES
        run(session.acquire(make_attempt("job"), TIMEOUT))
        os.unlink(path)
        deadline = clock.now() + 10.0
        while run(keeper.wait_for_hints(clock.now() + 0.3, wakeup)) != ALL_NAMES:
            assert clock.now() < deadline
    finally:
        wakeup.close()


def test_process_that_displaces_the_file_notifies_all_watchdogs(
    keeper: SqliteKeeper, path: str, start_worker: StartWorker
) -> None:
    wakeup = BLOCKING.wakeup()
    try:
        run(keeper.wait_for_hints(clock.now(), wakeup))
        keeper.store(clock.now()).look_at = clock.now() + 600.0  # disables its own periodic check
        os.unlink(path)
        start_worker().ask(do="acquire", name="job")
        assert run(keeper.wait_for_hints(clock.now() + 10.0, wakeup)) == ALL_NAMES
    finally:
        wakeup.close()


def test_lease_released_only_in_a_lost_log_is_not_waited_for(make_session: MakeSession, path: str) -> None:
    """Without its log the file is older: it shows a lock as held that this process has released since."""
    session, attempt = make_session(), make_attempt("job", 600.0)
    run(session.acquire(attempt, TIMEOUT))
    session.store(clock.now())._checkpoint()
    run(session.release(attempt, TIMEOUT))
    remove("-wal", "-shm")(path)
    session.store(clock.now()).look_at = 0.0
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Granted)


def test_removed_private_directory_does_not_prevent_locking_after_a_fork(session: SqliteSession, path: str) -> None:
    attempt = make_attempt("job")
    run(session.acquire(attempt, TIMEOUT))
    remove_private_directory(path)
    assert in_a_child(lambda: None)
    assert run(session.renew(attempt, 30.0, TIMEOUT)) == Found.GONE
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Granted)


def test_file_emptied_in_place_is_initialized_again(
    make_session: MakeSession, path: str, start_worker: StartWorker
) -> None:
    session, attempt = make_session(), make_attempt("job", TTL)
    run(session.acquire(attempt, TIMEOUT))
    empty_in_place(path)
    rival = start_worker()
    assert rival.ask(do="acquire", name="job", timeout=10.0)["token"] is not None
    assert run(session.renew(attempt, 30.0, TIMEOUT)) in (Found.GONE, Found.STOLEN)
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Busy)


def test_foreign_file_in_place_of_the_lock_file_is_refused_and_unchanged(make_session: MakeSession, path: str) -> None:
    session = make_session()
    run(session.acquire(make_attempt("job"), TIMEOUT))
    session.store(clock.now()).look_at = 0.0
    text = b"not a database, but the only copy of something " * 100
    Path(path + ".other").write_bytes(text)
    os.chmod(path + ".other", 0o600)
    os.replace(path + ".other", path)
    with pytest.raises(EngineRefused, match="not an SQLite database"):
        run(session.acquire(make_attempt("other"), TIMEOUT))
    assert Path(path).read_bytes() == text
    os.unlink(path)
    assert isinstance(run(session.acquire(make_attempt("other"), TIMEOUT)), Granted)
