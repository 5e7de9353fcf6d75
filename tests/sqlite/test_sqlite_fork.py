"""A forked child inherits neither the locks nor the connections nor the liveness of its parent."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from typing import Any

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import Busy, Found, Granted
from holdfast.engines.sqlite.session import SqliteSession
from tests.sqlite.conftest import TIMEOUT, MakeSession
from tests.sqlite.worker import make_attempt, obtain
from tests.support.forking import fork, in_a_child
from tests.support.leaks import open_files
from tests.support.soak import soak

# Python 3.12 warns about any fork of a process with threads; these tests do that deliberately.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


def test_child_can_neither_release_nor_renew_nor_repeat_the_claim_of_its_parent(session: SqliteSession) -> None:
    attempt = make_attempt("job")
    run(session.acquire(attempt, TIMEOUT))
    parent = session.store(clock.now()).process

    def work() -> None:
        assert run(session.release(attempt, TIMEOUT)) is Found.STOLEN
        assert run(session.renew(attempt, 60.0, TIMEOUT)) == Found.STOLEN
        assert isinstance(run(session.acquire(attempt, TIMEOUT)), Busy)
        assert session.store(clock.now()).process != parent
        own = make_attempt("other")
        assert isinstance(run(session.acquire(own, TIMEOUT)), Granted)
        assert run(session.release(own, TIMEOUT)) is Found.OURS

    assert in_a_child(work)
    assert run(session.renew(attempt, 30.0, TIMEOUT)) == Found.OURS
    assert session.store(clock.now()).process == parent


def test_child_does_not_keep_the_locks_of_a_dead_parent(make_session: MakeSession, path: str) -> None:
    """Parent P forks a child that stays alive; P is killed; its lock must be free despite the child."""
    read_end, write_end = os.pipe()
    hold_open, let_go = os.pipe()

    def parent() -> None:
        session = make_session()
        assert isinstance(run(session.acquire(make_attempt("job", 600.0), TIMEOUT)), Granted)
        grandchild = os.fork()
        if grandchild == 0:
            os.close(let_go)
            os.write(write_end, b"!")
            os.read(hold_open, 1)  # until the test closes the pipe
            os._exit(0)
        signal.pause()

    pid = fork(parent)
    assert os.read(read_end, 1) == b"!"
    session = make_session()
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Busy)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    granted = run(session.acquire(make_attempt("job"), TIMEOUT))
    for fd in (let_go, hold_open, read_end, write_end):
        os.close(fd)
    assert isinstance(granted, Granted)


def test_child_inherits_no_descriptor_of_the_engine(session: SqliteSession, path: str) -> None:
    run(session.acquire(make_attempt("job"), TIMEOUT))
    contender = session.contender(make_attempt("job"), TIMEOUT)
    run(contender.wait(clock.now() + 0.01))

    def work() -> None:
        assert open_files(path) == []

    assert in_a_child(work)
    run(contender.leave())


class ForksInBetween:
    """A connection whose statements are interrupted by a signal handler that forks before the rows are read."""

    def __init__(self, real: sqlite3.Connection) -> None:
        self._real = real

    def execute(self, *statement: Any) -> sqlite3.Cursor:
        cursor = self._real.execute(*statement)
        assert in_a_child(lambda: None)
        return cursor

    def close(self) -> None:
        self._real.close()


def test_fork_in_a_signal_handler_during_a_read_succeeds(session: SqliteSession) -> None:
    """Regression: "Cannot operate on a closed database"."""
    attempt = make_attempt("job")
    run(session.acquire(attempt, TIMEOUT))
    store = session.store(clock.now())

    def interrupt() -> None:
        assert store._connection is not None
        store._connection = ForksInBetween(store._connection)  # type: ignore[assignment]

    interrupt()
    assert run(session.inspect("job", TIMEOUT)).holders != ()
    run(session.ping(TIMEOUT))
    interrupt()
    assert run(session.renew(attempt, 30.0, TIMEOUT)) == Found.OURS
    run(session.ping(TIMEOUT))
    interrupt()
    assert isinstance(run(session.acquire(make_attempt("other"), TIMEOUT)), Granted)


def test_fork_leaves_the_log_in_place(session: SqliteSession, path: str) -> None:
    """The connection is closed before the fork, but not like that of the last process."""
    attempt = make_attempt("job")
    run(session.acquire(attempt, TIMEOUT))
    log = os.stat(path + "-wal").st_ino
    assert in_a_child(lambda: None)
    assert os.stat(path + "-wal").st_ino == log
    assert run(session.renew(attempt, 30.0, TIMEOUT)) == Found.OURS


@pytest.mark.timeout(120)
@pytest.mark.parametrize("forks", [40, soak(200, reason="hits rarer moments of a transaction")])
def test_forks_during_transactions_of_other_threads_succeed(make_session: MakeSession, path: str, forks: int) -> None:
    stop, errors, rounds = threading.Event(), [], [0]

    def hammer() -> None:
        session = make_session()
        try:
            while not stop.is_set():
                attempt = make_attempt("job")
                assert run(obtain(session, attempt, clock.now() + 30.0)) is not None
                assert run(session.release(attempt, TIMEOUT)) is Found.OURS
                rounds[0] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=hammer) for _ in range(3)]
    for thread in threads:
        thread.start()
    session = make_session()
    run(session.ping(1.0))

    def work() -> None:
        attempt = make_attempt("job")
        assert run(obtain(session, attempt, clock.now() + 10.0)) is not None
        assert run(session.release(attempt, TIMEOUT)) is Found.OURS

    try:
        for number in range(forks):
            # Most children exit immediately; every tenth uses the file.
            assert in_a_child(work if number % 10 == 0 else lambda: None)
    finally:
        stop.set()
        for thread in threads:
            thread.join(20.0)
    assert errors == []
    assert rounds[0] > forks
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
