"""Behaviour common to all test servers: free ports, failed starts, frozen servers, killed runs."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Final

import pytest

from tests.servers import process
from tests.servers.moto import MotoServer
from tests.servers.ports import free_port
from tests.servers.postgres import PostgresServer
from tests.servers.process import ServerFailed, ServerProcess
from tests.servers.redis import RedisServer
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.runs import assert_servers_end_with_a_killed_run

KINDS: Final = [
    pytest.param(RedisServer, id="redis", marks=pytest.mark.needs_redis),
    pytest.param(ZooKeeperServer, id="zookeeper", marks=pytest.mark.needs_zookeeper),
    pytest.param(PostgresServer, id="postgres", marks=pytest.mark.needs_postgres),
    pytest.param(MotoServer, id="moto"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_whose_port_is_taken_starts_on_another(
    kind: type[ServerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as occupant:
        occupant.bind(("127.0.0.1", 0))
        occupant.listen()
        taken, free = occupant.getsockname()[1], free_port()
        ports = iter([taken, free])
        monkeypatch.setattr(process, "free_port", lambda: next(ports))
        with kind() as server:
            assert server.port == free


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_server_can_be_stopped_and_leaves_no_files_or_processes(kind: type[ServerProcess]) -> None:
    with kind() as server:
        directory, pid = server.directory, server.pid
        server.pause()
        assert not server.answering
        server.stop()
        assert not server.running
    assert not directory.exists()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    "kind, line, reason",
    [
        pytest.param(RedisServer, "no-such-setting 1", "no-such-setting", marks=pytest.mark.needs_redis),
        pytest.param(ZooKeeperServer, "initLimit=soon", 'For input string: "soon"', marks=pytest.mark.needs_zookeeper),
    ],
)
def test_server_that_cannot_start_reports_the_reason_and_leaves_no_files(kind: Any, line: str, reason: str) -> None:
    server = kind(line)
    with pytest.raises(ServerFailed, match=reason):
        server.start()
    server.close()
    assert not server.directory.exists()


# PostgreSQL runs under another account, which cannot enter this directory; it has its own test.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.id != "postgres"])
def test_server_ends_with_a_killed_run(kind: type[ServerProcess], tmp_path: Path) -> None:
    start = f"from {kind.__module__} import {kind.__name__}\nprint({kind.__name__}().start().port, flush=True)"
    assert assert_servers_end_with_a_killed_run(tmp_path, start) == 1
