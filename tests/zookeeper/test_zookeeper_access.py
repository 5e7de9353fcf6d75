"""TLS, who we are, and who may touch what we create: by options of the URL, passed on to kazoo."""

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
from tests.zookeeper.support import LASTING, PATIENT, SOON, nodes

Start = Callable[..., ZooKeeperServer]


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tls=certificates(tmp_path_factory.mktemp("theirs"))) as server:
        yield server


@pytest.fixture(scope="module")
def shared() -> Iterator[ZooKeeperServer]:
    """Never emptied: what belongs to one user, another one may not remove. Each test has a base of its own."""
    with ZooKeeperServer() as server:
        yield server


def test_tls_sync_and_async(tls_server: ZooKeeperServer, connect: Connect) -> None:
    server = tls_server
    locks, others = (connect(server.url, unavailable_after=PATIENT) for _ in range(2))
    held = locks.lock("a").acquire()
    waiting = Call(others.lock("a").acquire)
    held.release()
    waiting.result().release()

    async def use() -> None:
        async with holdfast.aio.connect(server.url, unavailable_after=PATIENT) as locks, locks.lock("a") as lease:
            assert lease.held

    asyncio.run(use())


def test_what_tls_has_read_ahead_is_not_left_lying(tls_server: ZooKeeperServer, connect: Connect) -> None:
    """Two answers in one record: no socket tells of the second, and it would wait for the next ping."""
    locks = connect(tls_server.url, ttl=60, request_timeout=60, unavailable_after=60)  # a ping every 10 s
    locks.ping()
    began = time.monotonic()
    for _ in range(50):
        locks.lock("a").acquire().release()
    assert time.monotonic() - began < 8.0


def test_a_certificate_of_nobody_we_know_is_refused_at_once(
    tls_server: ZooKeeperServer, tmp_path: Path, connect: Connect
) -> None:
    url = f"zookeeper://{tls_server.host}:{tls_server.tls_port}{BASE}?tick=0.1&use_ssl=true"
    # Far longer than it takes: at once, and not when the time to wait for a connection is over.
    stranger = connect(f"{url}&ca={certificates(tmp_path)}/ca.crt", ttl=60, request_timeout=20, unavailable_after=60)
    began = time.monotonic()
    with pytest.raises(holdfast.EngineRefused, match="certificate"):
        stranger.ping()
    with pytest.raises(holdfast.EngineRefused, match="certificate"):
        stranger.lock("a").acquire()
    assert time.monotonic() - began < 10.0
    connect(f"{url}&verify_certs=false", unavailable_after=PATIENT).lock("a").acquire().release()


def test_one_bad_certificate_among_several_servers_is_no_refusal(
    tls_server: ZooKeeperServer, start_zookeeper: Start, tmp_path: Path, connect: Connect
) -> None:
    """An expired one, say; the others serve. Nor does it hide that they cannot be reached."""
    strange = start_zookeeper(tls=certificates(tmp_path))
    hosts = f"{strange.host}:{strange.tls_port},{tls_server.host}:{tls_server.tls_port}"
    query = f"tick=0.1&use_ssl=true&ca={tls_server.tls}/ca.crt&randomize_hosts=false"
    connect(f"zookeeper://{hosts}{BASE}?{query}", unavailable_after=PATIENT).lock("a").acquire().release()
    nobody = connect(f"zookeeper://127.0.0.1:1,{strange.host}:{strange.tls_port}{BASE}?{query}", unavailable_after=0.1)
    with pytest.raises(holdfast.EngineUnavailable):
        nobody.ping()


def test_files_that_tls_cannot_use_are_told_at_once(
    tls_server: ZooKeeperServer, tmp_path: Path, connect: Connect
) -> None:
    url = f"zookeeper://{tls_server.host}:{tls_server.tls_port}{BASE}?tick=0.1&use_ssl=true"
    for _ in range(2):
        with pytest.raises(holdfast.EngineRefused, match="No such file"):
            connect(f"{url}&ca={tmp_path}/none.crt", unavailable_after=60).ping()


def test_who_is_authenticated_keeps_its_locks_to_itself(connect: Connect, shared: ZooKeeperServer) -> None:
    """By default, once there is a user: else anybody could delete the node of a holder."""
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
    for stranger in (connect(f"zookeeper://{place}"), connect(f"zookeeper://app:wrong@{place}")):
        with pytest.raises(holdfast.EngineRefused, match="NoAuth") as refused:
            stranger.lock("a").acquire()
        assert "wrong" not in str(refused.value)
        with pytest.raises(holdfast.EngineRefused):
            stranger.break_("a")
    assert connect(url).lock("a").try_acquire() is None
    assert lease.held
    lease.release()


def test_acls_may_be_open_or_ones_own(connect: Connect, shared: ZooKeeperServer) -> None:
    owner = shared.client(auth_data=[("digest", "app:s3cr3t")])
    place, strangers = f"{shared.address}/open?tick=0.1", connect(f"zookeeper://{shared.address}/open?tick=0.1")
    with connect(f"zookeeper://app:s3cr3t@{place}&acl=open").lock("a"), strangers.lock("b"):
        pass
    own: list[ACL] = [*CREATOR_ALL_ACL, make_acl("world", "anyone", read=True)]
    locks = connect(f"zookeeper://app:s3cr3t@{place}", default_acl=own)
    with locks.lock("c") as lease:
        assert strangers.inspect("c").holders[0].owner == lease.owner
        assert len(owner.get_acls("/open/c")[0]) == 2
        with pytest.raises(holdfast.EngineRefused):
            strangers.break_("c")


def test_a_node_that_we_may_not_read_is_held_without_a_watch(
    proxy: ZooKeeperProxy, proxied: str, plain: KazooClient, connect: Connect
) -> None:
    """And it is not tried a thousand times a second."""
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


def test_a_base_that_is_there_needs_no_rights_above_it(shared: ZooKeeperServer, connect: Connect) -> None:
    admin = shared.client(auth_data=[("digest", "admin:pw")])
    admin.create("/above", acl=[*CREATOR_ALL_ACL, make_acl("world", "anyone", read=True)])
    admin.create("/above/base", acl=[make_acl("world", "anyone", all=True)])
    connect(f"zookeeper://{shared.address}/above/base?tick=0.1").lock("a").acquire().release()
    with pytest.raises(holdfast.EngineRefused, match="NoAuth"):
        connect(f"zookeeper://{shared.address}/above/other?tick=0.1").lock("a").acquire()


def test_sasl_needs_a_library_and_says_so(
    start_zookeeper: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_zookeeper(sasl={"app": "s3cr3t"})
    monkeypatch.setattr(connection, "PURESASL_AVAILABLE", False)
    locks = connect(sasl_url(server, "s3cr3t"))
    with pytest.raises(holdfast.EngineRefused, match="pure-sasl"):
        locks.ping()


def test_servers_that_demand_sasl_say_so(start_zookeeper: Start, connect: Connect) -> None:
    server = start_zookeeper("sessionRequireClientSASLAuth=true", sasl={"app": "s3cr3t"})
    with pytest.raises(holdfast.EngineRefused, match="demand SASL"):
        connect(f"{server.url}").lock("a").acquire()


@pytest.mark.skipif(not connection.PURESASL_AVAILABLE, reason="pure-sasl is not installed")
def test_sasl(start_zookeeper: Start, connect: Connect) -> None:
    server = start_zookeeper(sasl={"app": "s3cr3t"})
    with connect(sasl_url(server, "s3cr3t")).lock("a"):
        owner = server.client(sasl_options={"mechanism": "DIGEST-MD5", "username": "app", "password": "s3cr3t"})
        (node,) = nodes(owner, "a")
        assert owner.get_acls(f"{BASE}/a/{node}")[0][0].id.scheme == "sasl"
        with pytest.raises(NoAuthError):
            server.client().delete(f"{BASE}/a/{node}")
    stranger = connect(sasl_url(server, "wrong"))
    with pytest.raises(holdfast.EngineRefused, match="user name and password") as refused:
        stranger.ping()
    assert "wrong" not in str(refused.value)


def sasl_url(server: ZooKeeperServer, password: str) -> str:
    who = f"sasl_mechanism=DIGEST-MD5&sasl_username=app&sasl_password={password}"
    return f"zookeeper://{server.address}{BASE}?tick={server.tick}&{who}"
