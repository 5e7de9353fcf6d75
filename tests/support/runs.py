"""Runs of pytest and of servers in processes of their own: what a test of the test harness looks at."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def run_pytest(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """pytest on ``arguments``, on a machine with nothing on PATH."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *arguments],
        cwd=ROOT, env=inherited | {"PATH": "/nonexistent"} | environment, capture_output=True, text=True, timeout=50,
    )  # fmt: skip


def assert_servers_end_with_a_killed_run(directory: Path, start: str) -> int:
    """Start servers in a process and kill it: all servers end. Returns how many there were.

    ``start`` is code that starts them, below ``directory``, and prints their ports.
    """
    program = f"import tempfile; tempfile.tempdir = {str(directory)!r}\n{start}\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as victim:
        assert victim.stdout is not None
        ports = [int(port) for port in victim.stdout.readline().split()]
        connections = [socket.create_connection(("127.0.0.1", port), 5.0) for port in ports]
        victim.kill()
        for connection in connections:
            with connection, suppress(ConnectionResetError):
                assert connection.recv(1) == b""  # closed by the server's end, not by a time-out
    return len(ports)
