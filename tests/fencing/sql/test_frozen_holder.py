"""The fence refuses the late write of a holder frozen past its lease; without the fence that write destroys data.

The holder is a real process. It is stopped (SIGSTOP) between its load and its store; its lease expires; another holder
acquires, updates and commits; then it continues.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from tests.docs.markdown import ROOT
from tests.fencing.sql.holder import LOAD
from tests.fencing.sql.stores import Store

#: Kinds of the frozen holder, sync and async, by the fixture of their database.
HOLDERS = [
    pytest.param("sqlite3", "sqlite_store"),
    pytest.param("alchemy-async-session-sqlite", "sqlite_store"),
    pytest.param("psycopg", "postgres_store", marks=pytest.mark.needs_postgres),
    pytest.param("psycopg-async", "postgres_store", marks=pytest.mark.needs_postgres),
    pytest.param("django", "postgres_store", marks=pytest.mark.needs_postgres),
]


class Holder:
    """The other process, with one line per message."""

    def __init__(self, *arguments: str) -> None:
        environment = os.environ | {"DJANGO_ALLOW_ASYNC_UNSAFE": "true"}
        command = [sys.executable, "-W", "error", "-m", "tests.fencing.sql.holder", *arguments]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def freeze(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)
        os.kill(self.process.pid, signal.SIGCONT)


@contextmanager
def holder(*arguments: str) -> Iterator[Holder]:
    started = Holder(*arguments)
    with started.process:  # closes the pipes
        try:
            yield started
        finally:
            started.process.kill()


async def _prepare(store: Store) -> None:
    await store.run("CREATE TABLE stock (amount INTEGER)")
    await store.run("INSERT INTO stock VALUES (10)")


async def _late_store(kind: str, store: Store, tmp_path: Path, *, fenced: bool) -> tuple[str, int]:
    """Returns the result of the late store of the frozen holder, and the final stock."""
    await _prepare(store)
    locks_url = f"sqlite://{tmp_path}/locks.db"
    with holder(kind, store.place, locks_url, "fenced" if fenced else "bare") as old:
        assert old.answer() == "loaded 10"
        old.freeze()
        with holdfast.connect(locks_url) as locks, locks.lock("stock", timeout=30) as lease:
            async with store.begin() as work:
                if fenced:
                    await work.check("stock", lease)
                ((amount,),) = await work.run(LOAD)
                await work.run(f"UPDATE stock SET amount = {amount - 3}")
        old.thaw()
        answer = old.answer()
        assert old.process.wait(30) == 0
    ((amount,),) = await store.run(LOAD)
    return answer.split()[0] if answer else "", amount


@pytest.mark.parametrize("kind, database", HOLDERS)
async def test_fence_refuses_the_late_store_and_the_data_is_intact(
    kind: str, database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store: Store = request.getfixturevalue(database)
    assert await _late_store(kind, store, tmp_path, fenced=True) == ("refused", 7)


@pytest.mark.parametrize("kind, database", HOLDERS)
async def test_late_store_without_the_fence_overwrites_the_newer_update(
    kind: str, database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store: Store = request.getfixturevalue(database)
    assert await _late_store(kind, store, tmp_path, fenced=False) == ("stored", 9)  # 10 - 3 - 1 would be 6
