"""TLS, authentication and ACLs: set by options of the URL and passed on to kazoo."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.protocol import connection
from kazoo.security import ACL, CREATOR_ALL_ACL, Permissions, make_acl

import holdfast
from tests.servers.zookeeper import BASE, ZooKeeperServer
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.servers.zookeeper_wire import Op
from tests.support.calls import Call
from tests.support.certificates import certificates
from tests.support.waiting import eventually
from tests.zookeeper.conftest import Connect
from tests.zookeeper.support import LASTING, LONG_TIMEOUT, SOON, nodes

Start = Callable[..., ZooKeeperServer]


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tls=certificates(tmp_path_factory.mktemp("theirs"))) as server:
        yield server


@pytest.fixture(scope="module")
def shared() -> Iterator[ZooKeeperServer]:
    """Never emptied, since one user may not remove the nodes of another. Each test has a base of its own."""
    with ZooKeeperServer() as server:
        yield server


def test_locks_work_over_tls_sync_and_async(tls_server: ZooKeeperServer, connect: Connect) -> None:
    server = tls_server
    locks, others = (connect(server.url, unavailable_after=LONG_TIMEOUT) for _ in range(2))
    held = locks.lock("a").acquire()
    waiting = Call(others.lock("a").acquire)
    held.release()
    waiting.result().release()

    async def use() -> None:
        async with holdfast.aio.connect(server.url, unavailable_after=LONG_TIMEOUT) as locks, locks.lock("a") as lease:
            assert lease.held

    asyncio.run(use())


def test_replies_buffered_by_tls_are_processed_immediately(tls_server: ZooKeeperServer, connect: Connect) -> None:
    """With two answers in one record the socket does not signal the second, which would wait for the next ping."""
    locks = connect(tls_server.url, ttl=60, request_timeout=60, unavailable_after=60)  # a ping every 10 s
    locks.ping()
    began = time.monotonic()
    for _ in range(50):
        locks.lock("a").acquire().release()
    assert time.monotonic() - began < 8.0


def test_untrusted_certificate_is_refused_immediately(
    tls_server: ZooKeeperServer, tmp_path: Path, connect: Connect
) -> None:
    url = f"zookeeper://{tls_server.host}:{tls_server.tls_port}{BASE}?tick=0.1&use_ssl=true"
    # The timeouts are far longer than the refusal takes: it does not wait for the connect timeout.
    distrusting = connect(f"{url}&ca={certificates(tmp_path)}/ca.crt", ttl=60, request_timeout=20, unavailable_after=60)
    began = time.monotonic()
    with pytest.raises(holdfast.EngineRefused, match="certificate"):
        distrusting.ping()
    with pytest.raises(holdfast.EngineRefused, match="certificate"):
        distrusting.lock("a").acquire()
    assert time.monotonic() - began < 10.0
    connect(f"{url}&verify_certs=false", unavailable_after=LONG_TIMEOUT).lock("a").acquire().release()


def test_one_bad_certificate_among_several_servers_does_not_refuse_the_connection(
    tls_server: ZooKeeperServer, start_zookeeper: Start, tmp_path: Path, connect: Connect
) -> None:
    """One certificate may have expired while the other servers serve. It must not hide that they are unreachable."""
    strange = start_zookeeper(tls=certificates(tmp_path))
    hosts = f"{strange.host}:{strange.tls_port},{tls_server.host}:{tls_server.tls_port}"
    query = f"tick=0.1&use_ssl=true&ca={tls_server.tls}/ca.crt&randomize_hosts=false"
    connect(f"zookeeper://{hosts}{BASE}?{query}", unavailable_after=LONG_TIMEOUT).lock("a").acquire().release()
    unreachable = connect(
        f"zookeeper://127.0.0.1:1,{strange.host}:{strange.tls_port}{BASE}?{query}", unavailable_after=0.1
    )
    with pytest.raises(holdfast.EngineUnavailable):
        unreachable.ping()


def test_missing_tls_files_are_reported_immediately(
    tls_server: ZooKeeperServer, tmp_path: Path, connect: Connect
) -> None:
    url = f"zookeeper://{tls_server.host}:{tls_server.tls_port}{BASE}?tick=0.1&use_ssl=true"
    for _ in range(2):
        with pytest.raises(holdfast.EngineRefused, match="No such file"):
            connect(f"{url}&ca={tmp_path}/none.crt", unavailable_after=60).ping()


def test_locks_of_an_authenticated_client_are_protected_from_other_users(
    connect: Connect, shared: ZooKeeperServer
) -> None:
    """The default with a user: otherwise any client could delete the node of a holder."""
    server, place, base = shared, f"{shared.address}/private?tick=0.1", "/private"
    url = f"zookeeper://app:s3cr3t@{place}"
    locks = connect(url)
    lease = locks.lock("a").acquire()
    owner = server.client(auth_data=[("digest", "app:s3cr3t")])
    (node,) = nodes(owner, "a", base)
    for path in (base, f"{base}/a", f"{base}/a/{node}"):
        assert owner.get_acls(path)[0][0].perms == Permissions.ALL
        assert owner.get_acls(path)[0][0].id.id.startswith("app:")
    with pytest.raises(NoAuthError):
        server.client().delete(f"{base}/a/{node}")
    for other_user in (connect(f"zookeeper://{place}"), connect(f"zookeeper://app:wrong@{place}")):
        with pytest.raises(holdfast.EngineRefused, match="NoAuth") as refused:
            other_user.lock("a").acquire()
        assert "wrong" not in str(refused.value)
        with pytest.raises(holdfast.EngineRefused):
            other_user.break_("a")
    assert connect(url).lock("a").try_acquire() is None
    assert lease.held
    lease.release()


def test_acls_may_be_open_or_custom(connect: Connect, shared: ZooKeeperServer) -> None:
    owner = shared.client(auth_data=[("digest", "app:s3cr3t")])
    place, anonymous = f"{shared.address}/open?tick=0.1", connect(f"zookeeper://{shared.address}/open?tick=0.1")
    with connect(f"zookeeper://app:s3cr3t@{place}&acl=open").lock("a"), anonymous.lock("b"):
        pass
    own: list[ACL] = [*CREATOR_ALL_ACL, make_acl("world", "anyone", read=True)]
    locks = connect(f"zookeeper://app:s3cr3t@{place}", default_acl=own)
    with locks.lock("c") as lease:
        assert anonymous.inspect("c").holders[0].owner == lease.owner
        assert len(owner.get_acls("/open/c")[0]) == 2
        with pytest.raises(holdfast.EngineRefused):
            anonymous.break_("c")


def test_lock_whose_node_is_not_readable_is_held_without_a_watch(
    proxy: ZooKeeperProxy, proxied: str, plain: KazooClient, connect: Connect
) -> None:
    """The watch is not retried in a busy loop."""
    plain.create(f"{BASE}/a", makepath=True)
    locks = connect(
        proxied,
        ttl=LASTING,
        default_acl=[make_acl("world", "anyone", create=True, delete=True, write=True, admin=True)],
    )
    lease = locks.lock("a").acquire()
    eventually(lambda: proxy.operations().count(Op.SYNC) >= 3, within=2 * SOON)
    assert lease.held
    assert proxy.operations().count(Op.GET_DATA) < 40
    lease.release()
    assert nodes(plain, "a") == []


def test_existing_base_needs_no_rights_on_its_parents(shared: ZooKeeperServer, connect: Connect) -> None:
    admin = shared.client(auth_data=[("digest", "admin:pw")])
    admin.create("/above", acl=[*CREATOR_ALL_ACL, make_acl("world", "anyone", read=True)])
    admin.create("/above/base", acl=[make_acl("world", "anyone", all=True)])
    connect(f"zookeeper://{shared.address}/above/base?tick=0.1").lock("a").acquire().release()
    with pytest.raises(holdfast.EngineRefused, match="NoAuth"):
        connect(f"zookeeper://{shared.address}/above/other?tick=0.1").lock("a").acquire()


def test_missing_sasl_library_is_named_in_the_error(
    start_zookeeper: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_zookeeper(sasl={"app": "s3cr3t"})
    monkeypatch.setattr(connection, "PURESASL_AVAILABLE", False)
    locks = connect(sasl_url(server, "s3cr3t"))
    with pytest.raises(holdfast.EngineRefused, match="pure-sasl"):
        locks.ping()


def test_unauthenticated_client_is_refused_by_servers_that_demand_sasl(
    start_zookeeper: Start, connect: Connect
) -> None:
    server = start_zookeeper("sessionRequireClientSASLAuth=true", sasl={"app": "s3cr3t"})
    with pytest.raises(holdfast.EngineRefused, match="demand SASL"):
        connect(f"{server.url}").lock("a").acquire()


@pytest.mark.skipif(not connection.PURESASL_AVAILABLE, reason="pure-sasl is not installed")
def test_sasl_user_owns_its_nodes_and_a_wrong_password_is_refused(start_zookeeper: Start, connect: Connect) -> None:
    server = start_zookeeper(sasl={"app": "s3cr3t"})
    with connect(sasl_url(server, "s3cr3t")).lock("a"):
        owner = server.client(sasl_options={"mechanism": "DIGEST-MD5", "username": "app", "password": "s3cr3t"})
        (node,) = nodes(owner, "a")
        assert owner.get_acls(f"{BASE}/a/{node}")[0][0].id.scheme == "sasl"
        with pytest.raises(NoAuthError):
            server.client().delete(f"{BASE}/a/{node}")
    wrong_password = connect(sasl_url(server, "wrong"))
    with pytest.raises(holdfast.EngineRefused, match="user name and password") as refused:
        wrong_password.ping()
    assert "wrong" not in str(refused.value)


def sasl_url(server: ZooKeeperServer, password: str) -> str:
    credentials = f"sasl_mechanism=DIGEST-MD5&sasl_username=app&sasl_password={password}"
    return f"zookeeper://{server.address}{BASE}?tick={server.tick}&{credentials}"
