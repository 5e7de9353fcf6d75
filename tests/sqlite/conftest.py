from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast._runtime import clock
from holdfast._runtime.base import Runtime
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.sqlite.engine import connect
from holdfast.engines.sqlite.keeper import SqliteKeeper
from holdfast.engines.sqlite.session import SqliteSession

MakeSession = Callable[..., SqliteSession]
MakeKeeper = Callable[[], SqliteKeeper]

#: Timeout of a request while another process may be paused in the middle of a transaction.
TIMEOUT: Final = 5.0


class Worker:
    """Another process that uses the same file."""

    def __init__(self, path: str) -> None:
        script = Path(__file__).with_name("worker.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ask(do="ping")  # waits until it has started

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, **order: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def ask(self, **order: Any) -> dict[str, Any]:
        self.send(**order)
        return self.answer()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        if self._process.poll() is None:
            self.thaw()
            try:
                self._process.wait(5.0)
            except subprocess.TimeoutExpired:
                self.kill()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "private" / "locks.db")


@pytest.fixture
def make_session(path: str) -> Iterator[MakeSession]:
    sessions = []

    def make(runtime: Runtime = BLOCKING, **options: Any) -> SqliteSession:
        sessions.append(connect(path, options).session(runtime))
        return sessions[-1]

    yield make
    for session in sessions:
        run(session.close())


@pytest.fixture
def session(make_session: MakeSession) -> SqliteSession:
    return make_session()


@pytest.fixture
def make_keeper(path: str) -> Iterator[MakeKeeper]:
    keepers = []

    def make() -> SqliteKeeper:
        keepers.append(connect(path, {}).keeper(BLOCKING))
        return keepers[-1]

    yield make
    for keeper in keepers:
        run(keeper.close())


@pytest.fixture
def keeper(make_keeper: MakeKeeper) -> SqliteKeeper:
    return make_keeper()


@pytest.fixture
def start_worker(path: str) -> Iterator[Callable[[], Worker]]:
    workers = []

    def start() -> Worker:
        workers.append(Worker(path))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


@contextlib.contextmanager
def statements_of(session: SqliteSession) -> Iterator[list[str]]:
    """The statements that a session runs in the block."""
    connection = session.store(clock.now())._connection
    assert connection is not None
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    yield seen
    connection.set_trace_callback(None)
