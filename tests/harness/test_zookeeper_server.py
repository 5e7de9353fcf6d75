"""The tests' own ZooKeeper: it starts, pauses, dies and restarts as the fault tests assume."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import CREATOR_ALL_ACL

from tests.servers.silent_session import SilentSession
from tests.servers.zookeeper import BASE, Operations, ZooKeeperServer
from tests.servers.zookeeper_wire import Op
from tests.support.certificates import certificates
from tests.support.leaks import new_threads
from tests.support.runs import run_pytest
from tests.support.waiting import eventually

Start = Callable[..., ZooKeeperServer]


def test_server_is_the_process_that_was_started(zookeeper_server: ZooKeeperServer) -> None:
    assert f"dataDir={zookeeper_server.directory}/" in zookeeper_server.ask("conf")
    assert zookeeper_server.mode() == "standalone"
    assert zookeeper_server.url == f"zookeeper://127.0.0.1:{zookeeper_server.port}/holdfast?tick=0.1"


@pytest.mark.parametrize("turn", [1, 2])
def test_server_is_empty_at_the_start_of_each_test(zookeeper_server: ZooKeeperServer, turn: int) -> None:
    client = zookeeper_server.client()
    assert client.get_children("/") == ["zookeeper"]
    client.create(f"/left/behind/{turn}", makepath=True)


def test_operations_are_counted_without_pings(zookeeper_server: ZooKeeperServer) -> None:
    client = zookeeper_server.client()
    client.create(BASE)
    before = zookeeper_server.operations()
    with SilentSession(zookeeper_server.host, zookeeper_server.port, 5.0) as session:
        assert session.create(f"{BASE}/x").error == 0
        assert session.get_data(f"{BASE}/x").error == 0
        assert session.get_data(f"{BASE}/x").error == 0
        session.ping()
        session.sync(BASE)
    client.get("/")
    assert zookeeper_server.operations().since(before) == Operations(reads=2, writes=1)


def test_paused_server_does_not_answer_until_resumed(start_zookeeper: Start) -> None:
    server = start_zookeeper()
    server.pause()
    assert not server.answering
    with socket.create_connection((server.host, server.port), 0.2) as connection:
        connection.sendall(b"ruok")
        with pytest.raises(TimeoutError):
            connection.recv(4)
        server.resume()
        connection.settimeout(5.0)
        assert connection.recv(4) == b"imok"


def test_killed_server_restarts_with_its_data_on_the_same_port(start_zookeeper: Start) -> None:
    server = start_zookeeper()
    port, pid = server.port, server.pid
    with SilentSession(server.host, port, 30.0) as session:
        assert session.create("/mine").error == 0
        server.kill()
        assert not server.running
        assert server.mode() is None
        with pytest.raises(ConnectionRefusedError):
            server.ask("ruok")
        server.restart()
        assert (server.port, server.pid != pid) == (port, True)
        # Acknowledged writes are on disk, and sessions survive.
        assert server.client().exists("/mine").ephemeralOwner == session.session_id
        with SilentSession(server.host, port, 30.0, resume=session) as again:
            assert again.session_id == session.session_id
            assert again.get_data("/mine").error == 0


def test_silent_session_does_not_end_before_its_timeout(zookeeper_server: ZooKeeperServer) -> None:
    client = zookeeper_server.client()
    with SilentSession(zookeeper_server.host, zookeeper_server.port, 1.5) as session:
        assert session.timeout == 1.5
        session.create("/mine")
        began = time.monotonic()
        session.ping()
        eventually(lambda: client.exists("/mine") is None)
        # The server ends sessions on a full tick, possibly late. No upper bound: the machine is shared.
        assert time.monotonic() - began >= 1.5
        with pytest.raises(ConnectionResetError):
            session.ping()


def test_session_timeout_is_limited_to_the_allowed_range(zookeeper_server: ZooKeeperServer) -> None:
    for asked, given in ((0.01, 0.2), (600.0, 60.0)):
        with SilentSession(zookeeper_server.host, zookeeper_server.port, asked) as session:
            assert session.timeout == given


def test_empty_containers_are_removed_soon(start_zookeeper: Start) -> None:
    server = start_zookeeper(containers=0.1)
    with SilentSession(server.host, server.port, 5.0) as session:
        assert session.create("/parent", Op.CREATE_CONTAINER).error == 0
        assert session.create("/parent/child").error == 0
    client = server.client()
    client.delete("/parent/child")
    eventually(lambda: client.exists("/parent") is None)


@pytest.mark.needs_zookeeper
def test_closed_server_leaves_no_files_processes_or_threads() -> None:
    before = set(threading.enumerate())
    with ZooKeeperServer() as server:
        directory, pid = server.directory, server.pid
        server.client()
        server.client().create("/x")
        server.pause()  # closing must not wait for the answer to a close request
    assert not directory.exists()
    assert not Path(f"/proc/{pid}").exists()
    eventually(lambda: not new_threads(before))


@pytest.mark.parametrize("ci", ["", "true"])
def test_without_java_a_test_is_skipped_by_name_or_fails(ci: str) -> None:
    test = "tests/harness/test_zookeeper_server.py::test_server_is_the_process_that_was_started"
    done = run_pytest(test, CI=ci)
    expected = "java is not on PATH; with CI=true that is a failure" if ci else f"{test}: java is not on PATH"
    assert expected in done.stdout
    assert "1 passed" not in done.stdout


# ---- authentication


def test_tls_server_presents_its_certificate(start_zookeeper: Start, tmp_path: Path) -> None:
    server = start_zookeeper(tls=certificates(tmp_path))
    address = (server.host, server.tls_port)
    assert f":{server.tls_port}/" in server.url
    client = server.client(f"{server.host}:{server.tls_port}", use_ssl=True, ca=f"{tmp_path}/ca.crt")
    assert client.create("/x") == "/x"
    strangers = ssl.create_default_context()
    with socket.create_connection(address, 5.0) as plain, pytest.raises(ssl.SSLCertVerificationError):
        strangers.wrap_socket(plain, server_hostname=server.host)


def test_digest_user_owns_its_nodes(zookeeper_server: ZooKeeperServer) -> None:
    owner = zookeeper_server.client(auth_data=[("digest", "app:s3cr3t")])
    owner.create("/mine", b"data", acl=CREATOR_ALL_ACL)
    assert owner.get("/mine")[0] == b"data"
    with pytest.raises(NoAuthError):
        zookeeper_server.client().get("/mine")
    owner.delete("/mine")


def test_sasl_starts_with_a_challenge(start_zookeeper: Start) -> None:
    server = start_zookeeper(sasl={"app": "s3cr3t"})
    with SilentSession(server.host, server.port, 5.0) as session:
        challenge = session.begin_sasl()
    assert b"md5-sess" in challenge
    assert b"nonce=" in challenge
