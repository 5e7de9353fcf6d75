"""The tests' own PostgreSQL: it is empty for each test, and ends with the run, even if the run is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT
from tests.servers.postgres import PostgresServer
from tests.support.waiting import eventually


@pytest.mark.parametrize("turn", [1, 2])
def test_database_is_empty_at_the_start_of_each_test(postgres_server: PostgresServer, turn: int) -> None:
    with postgres_server.connect() as db:
        assert db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall() == []
        db.execute("CREATE TABLE left_behind (id integer)")


def test_server_does_not_run_as_root(postgres_server: PostgresServer) -> None:
    assert os.stat(f"/proc/{postgres_server.pid}").st_uid != 0


_START = """
import sys
from tests.servers.postgres import PostgresServer
server = PostgresServer().start()
print(server.pid, server.directory, flush=True)
sys.stdin.readline()
"""


def _is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.needs_postgres
def test_server_ends_with_a_killed_run() -> None:
    command = [sys.executable, "-c", _START]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pid, directory = run.stdout.readline().split()
        assert _is_running(int(pid))
        run.send_signal(signal.SIGKILL)
    eventually(lambda: not _is_running(int(pid)))
    subprocess.run(["rm", "-r", directory], check=True)  # a killed run cannot remove it
