"""A forked child inherits neither the locks nor the connections nor the liveness of its parent."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import Busy, Found, Granted
from holdfast.engines.sqlite.session import SqliteSession
from tests.sqlite.conftest import TIMEOUT, MakeSession
from tests.sqlite.worker import make_claim, obtain

# Python 3.12 warns about any fork of a process with threads; these tests do that deliberately.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


def in_child(work: Callable[[], None]) -> int:
    """Forks, runs ``work`` in the child and returns its pid. The exit code is 0 only if ``work`` returned."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def exit_code(pid: int, within: float = 20.0) -> int:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child is stuck")


def test_child_can_neither_release_nor_renew_nor_repeat_the_claim_of_its_parent(session: SqliteSession) -> None:
    claim = make_claim("job")
    run(session.acquire(claim, TIMEOUT))
    parent = session.store(clock.now()).process

    def work() -> None:
        assert run(session.release(claim, TIMEOUT)) is Found.STOLEN
        assert run(session.renew([claim], 60.0, TIMEOUT)) == [Found.STOLEN]
        assert isinstance(run(session.acquire(claim, TIMEOUT)), Busy)
        assert session.store(clock.now()).process != parent
        own = make_claim("other")
        assert isinstance(run(session.acquire(own, TIMEOUT)), Granted)
        assert run(session.release(own, TIMEOUT)) is Found.OURS

    assert exit_code(in_child(work)) == 0
    assert run(session.renew([claim], 30.0, TIMEOUT)) == [Found.OURS]
    assert session.store(clock.now()).process == parent


def test_child_does_not_keep_the_locks_of_a_dead_parent(make_session: MakeSession, path: str) -> None:
    """Parent P forks a child that stays alive; P is killed; its lock must be free despite the child."""
    read_end, write_end = os.pipe()
    hold_open, let_go = os.pipe()

    def parent() -> None:
        session = make_session()
        assert isinstance(run(session.acquire(make_claim("job", 600.0), TIMEOUT)), Granted)
        grandchild = os.fork()
        if grandchild == 0:
            os.close(let_go)
            os.write(write_end, b"!")
            os.read(hold_open, 1)  # until the test closes the pipe
            os._exit(0)
        signal.pause()

    pid = in_child(parent)
    assert os.read(read_end, 1) == b"!"
    session = make_session()
    assert isinstance(run(session.acquire(make_claim("job"), TIMEOUT)), Busy)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    granted = run(session.acquire(make_claim("job"), TIMEOUT))
    for fd in (let_go, hold_open, read_end, write_end):
        os.close(fd)
    assert isinstance(granted, Granted)


def test_child_inherits_no_descriptor_of_the_engine(session: SqliteSession, path: str) -> None:
    run(session.acquire(make_claim("job"), TIMEOUT))
    contender = session.contender(make_claim("job"), TIMEOUT)
    run(contender.wait(clock.now() + 0.01))

    def work() -> None:
        targets = []
        for fd in os.listdir("/proc/self/fd"):
            try:
                targets.append(os.readlink(f"/proc/self/fd/{fd}"))
            except FileNotFoundError:
                pass  # the descriptor of listdir
        assert not [target for target in targets if target.startswith(path)], targets

    assert exit_code(in_child(work)) == 0
    run(contender.leave())


class ForksInBetween:
    """A connection whose statements are interrupted by a signal handler that forks before the rows are read."""

    def __init__(self, real: sqlite3.Connection) -> None:
        self._real = real

    def execute(self, *statement: Any) -> sqlite3.Cursor:
        cursor = self._real.execute(*statement)
        assert exit_code(in_child(lambda: None)) == 0
        return cursor

    def close(self) -> None:
        self._real.close()


def test_fork_in_a_signal_handler_during_a_read_succeeds(session: SqliteSession) -> None:
    """Regression: "Cannot operate on a closed database"."""
    claim = make_claim("job")
    run(session.acquire(claim, TIMEOUT))
    store = session.store(clock.now())

    def interrupt() -> None:
        assert store._connection is not None
        store._connection = ForksInBetween(store._connection)  # type: ignore[assignment]

    interrupt()
    assert run(session.inspect("job", TIMEOUT)).holders != ()
    run(session.ping(TIMEOUT))
    interrupt()
    assert run(session.renew([claim], 30.0, TIMEOUT)) == [Found.OURS]
    run(session.ping(TIMEOUT))
    interrupt()
    assert isinstance(run(session.acquire(make_claim("other"), TIMEOUT)), Granted)


def test_fork_leaves_the_log_in_place(session: SqliteSession, path: str) -> None:
    """The connection is closed before the fork, but not like that of the last process."""
    claim = make_claim("job")
    run(session.acquire(claim, TIMEOUT))
    log = os.stat(path + "-wal").st_ino
    assert exit_code(in_child(lambda: None)) == 0
    assert os.stat(path + "-wal").st_ino == log
    assert run(session.renew([claim], 30.0, TIMEOUT)) == [Found.OURS]


@pytest.mark.timeout(120)
def test_forks_during_transactions_of_other_threads_succeed(make_session: MakeSession, path: str) -> None:
    stop, errors, rounds = threading.Event(), [], [0]

    def hammer() -> None:
        session = make_session()
        try:
            while not stop.is_set():
                claim = make_claim("job")
                assert run(obtain(session, claim, clock.now() + 30.0)) is not None
                assert run(session.release(claim, TIMEOUT)) is Found.OURS
                rounds[0] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=hammer) for _ in range(3)]
    for thread in threads:
        thread.start()
    session = make_session()
    run(session.ping(1.0))

    def work() -> None:
        claim = make_claim("job")
        assert run(obtain(session, claim, clock.now() + 10.0)) is not None
        assert run(session.release(claim, TIMEOUT)) is Found.OURS

    try:
        for number in range(200):
            # Most children exit immediately; every tenth uses the file.
            assert exit_code(in_child(work if number % 10 == 0 else lambda: None)) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join(20.0)
    assert errors == []
    assert rounds[0] > 200
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
