"""The fault proxy in front of a real ZooKeeper: each fault affects the chosen messages only."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.states import EventType, WatchedEvent

from tests.servers.silent_session import SilentSession
from tests.servers.zookeeper import ZooKeeperServer
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.servers.zookeeper_wire import Op, ProtocolError
from tests.support.leaks import new_threads
from tests.support.waiting import eventually

SOON = 5.0
CREATES = (Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER)


@pytest.fixture
def proxy(zookeeper_proxy: ZooKeeperProxy) -> ZooKeeperProxy:
    return zookeeper_proxy


@pytest.fixture
def direct(zookeeper_server: ZooKeeperServer) -> KazooClient:
    return zookeeper_server.client()


@pytest.fixture
def session(proxy: ZooKeeperProxy) -> Iterator[SilentSession]:
    with SilentSession(proxy.host, proxy.port, 30.0) as session:
        yield session


# ---- without a fault


def test_proxy_without_rules_passes_and_records_all_requests(
    proxy: ZooKeeperProxy, zookeeper_server: ZooKeeperServer, direct: KazooClient
) -> None:
    client = zookeeper_server.client(proxy.address)
    seen = threading.Event()
    client.create("/a")
    client.create("/b", include_data=True)
    client.get("/a", watch=lambda _: seen.set())
    client.get_children("/")
    client.sync("/")
    client.delete("/b")
    direct.set("/a", b"news")
    assert seen.wait(SOON)
    assert proxy.operations() == [Op.CREATE, Op.CREATE2, Op.GET_DATA, Op.GET_CHILDREN, Op.SYNC, Op.DELETE]
    assert {b"CONNECT", b"EVENT"} < {name for name, _ in proxy.seen}
    assert proxy.connections == 1
    assert proxy.url == f"zookeeper://127.0.0.1:{proxy.port}/holdfast"


# ---- one request


@pytest.mark.parametrize("op", CREATES)
def test_drop_reply_and_reset_runs_the_request(
    proxy: ZooKeeperProxy, session: SilentSession, direct: KazooClient, op: Op
) -> None:
    lost = proxy.on(op, containing="/mine").drop_reply_and_reset()
    session.create("/other", op)
    with pytest.raises(ConnectionResetError):
        session.create("/mine", op)
    assert lost.wait(SOON)
    assert direct.exists("/mine")
    with SilentSession(proxy.host, proxy.port, 30.0, resume=session) as again:
        assert again.session_id == session.session_id
        assert again.get_data("/mine").error == 0


def test_drop_reply_and_reset_raises_connection_loss_in_kazoo(
    proxy: ZooKeeperProxy, zookeeper_server: ZooKeeperServer, direct: KazooClient
) -> None:
    client = zookeeper_server.client(proxy.address)
    session_id, _ = client.client_id
    proxy.on(*CREATES).drop_reply_and_reset()
    with pytest.raises(ConnectionLoss):
        client.create("/mine", ephemeral=True)
    assert direct.exists("/mine").ephemeralOwner == session_id
    eventually(lambda: client.connected)
    client.delete("/mine")


def test_drop_request_and_reset_does_not_run_the_request(
    proxy: ZooKeeperProxy, session: SilentSession, direct: KazooClient
) -> None:
    rule = proxy.on(Op.CREATE).drop_request_and_reset()
    with pytest.raises(ConnectionResetError):
        session.create("/mine")
    assert rule.fired
    assert direct.exists("/mine") is None


def test_rule_matches_the_nth_request_of_its_kind(
    proxy: ZooKeeperProxy, session: SilentSession, direct: KazooClient
) -> None:
    rule = proxy.on(Op.CREATE, nth=3).drop_reply_and_reset()
    for path in ("/1", "/2"):
        assert session.create(path).error == 0
        assert session.sync("/").error == 0
    assert not rule.fired
    with pytest.raises(ConnectionResetError):
        session.create("/3")
    assert sorted(direct.get_children("/")) == ["1", "2", "3", "zookeeper"]


def test_rule_skips_pings_unless_it_names_them(proxy: ZooKeeperProxy, session: SilentSession) -> None:
    rule = proxy.on().drop_reply_and_reset()
    session.ping()
    assert not rule.fired
    pings = proxy.on(Op.PING, nth=2).drop_reply_and_reset()
    session.ping()
    with pytest.raises(ConnectionResetError):
        session.ping()
    assert pings.hits == [(b"PING", b"")]


def test_delayed_request_arrives_after_its_client_disconnected(
    proxy: ZooKeeperProxy, session: SilentSession, direct: KazooClient
) -> None:
    late = proxy.on(Op.CREATE).delay(side="request")
    with ThreadPoolExecutor(1) as others:
        creating = others.submit(session.create, "/late")
        assert late.wait(SOON)
        session.disconnect()
        with pytest.raises(OSError):
            creating.result(SOON)
    assert direct.exists("/late") is None
    late.release()
    eventually(lambda: direct.exists("/late"))


def test_reply_is_delayed_until_released(proxy: ZooKeeperProxy, session: SilentSession, direct: KazooClient) -> None:
    held = proxy.on(Op.CREATE).delay()
    with ThreadPoolExecutor(1) as others:
        creating = others.submit(session.create, "/x")
        assert held.wait(SOON)
        assert direct.exists("/x")
        assert not creating.done()
        held.release()
        assert creating.result(SOON).error == 0


def test_drop_request_black_hole_affects_one_connection_until_it_ends(
    proxy: ZooKeeperProxy, session: SilentSession, direct: KazooClient
) -> None:
    rule = proxy.on(Op.CREATE).drop_request_black_hole()
    with ThreadPoolExecutor(1) as others:
        creating = others.submit(session.create, "/x")
        assert rule.wait(SOON)
        proxy.heal()  # not for this connection
        with SilentSession(proxy.host, proxy.port, 30.0) as another:
            assert another.sync("/").error == 0
        assert not creating.done()
        assert direct.exists("/x") is None
        session.disconnect()
        with pytest.raises(OSError):
            creating.result(SOON)


def test_dropped_event_reaches_no_watch(
    proxy: ZooKeeperProxy, zookeeper_server: ZooKeeperServer, direct: KazooClient
) -> None:
    client, seen = zookeeper_server.client(proxy.address), SimpleQueue[WatchedEvent]()
    direct.create("/watched")
    client.get("/watched", watch=seen.put)
    lost = proxy.on(Op.EVENT, containing="/watched").drop_reply_and_reset()
    direct.delete("/watched")
    assert lost.wait(SOON)
    # kazoo does not set its watches again: it only notifies each of the lost connection.
    assert seen.get(timeout=SOON).type == EventType.NONE
    assert client.retry(client.exists, "/watched") is None
    assert seen.empty()


def test_sliced_requests_and_replies_are_understood(proxy: ZooKeeperProxy, session: SilentSession) -> None:
    rule = proxy.on(times=None).slice()
    assert session.create("/x").error == 0
    assert session.get_data("/x").error == 0
    assert len(rule.hits) == 2


# ---- all connections


def test_requests_held_back_by_a_partition_arrive_when_it_heals(
    proxy: ZooKeeperProxy, session: SilentSession, direct: KazooClient
) -> None:
    proxy.black_hole_all()
    with ThreadPoolExecutor(2) as others:
        creating = others.submit(session.create, "/x")
        connecting = others.submit(SilentSession, proxy.host, proxy.port, 30.0)
        eventually(lambda: proxy.connections == 2)
        assert direct.exists("/x") is None
        assert not creating.done()
        assert not connecting.done()
        proxy.heal()
        assert creating.result(SOON).error == 0
        with connecting.result(SOON) as second:
            assert second.sync("/").error == 0


def test_client_that_disconnects_during_a_partition_never_arrives(
    proxy: ZooKeeperProxy, session: SilentSession
) -> None:
    proxy.black_hole_all()
    with socket.create_connection((proxy.host, proxy.port), SOON) as caller:
        eventually(lambda: proxy.connections == 2)
        caller.sendall(b"\0\0\0\4late")
    proxy.heal()
    eventually(lambda: proxy.connections == 1)
    assert session.sync("/").error == 0
    assert [name for name, _ in proxy.seen] == [b"CONNECT", b"SYNC"]


def test_cut_all_resets_every_connection(proxy: ZooKeeperProxy, session: SilentSession) -> None:
    with SilentSession(proxy.host, proxy.port, 30.0) as other:
        assert proxy.cut_all() == 2
        for one in (session, other):
            with pytest.raises(ConnectionResetError):
                one.ping()
    eventually(lambda: proxy.connections == 0)


def test_refuse_affects_new_connections_until_accept(proxy: ZooKeeperProxy, session: SilentSession) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        SilentSession(proxy.host, proxy.port, 30.0)
    assert session.sync("/").error == 0
    proxy.accept()
    with SilentSession(proxy.host, proxy.port, 30.0) as other:
        assert other.sync("/").error == 0


# ---- the proxy itself


def test_client_with_another_protocol_is_disconnected_and_reported(zookeeper_server: ZooKeeperServer) -> None:
    proxy = ZooKeeperProxy(zookeeper_server.host, zookeeper_server.port).start()
    with socket.create_connection((proxy.host, proxy.port), SOON) as client:
        client.sendall(b"ruok")
        with pytest.raises(ConnectionResetError):
            client.recv(4)
    with pytest.raises(ProtocolError):
        proxy.close()


def test_invalid_rule_is_refused(proxy: ZooKeeperProxy) -> None:
    with pytest.raises(ValueError):
        proxy.on(nth=0)
    with pytest.raises(ValueError, match="session"):
        proxy.on(Op.CREATE).duplicate()


def test_closed_proxy_leaves_no_sockets_threads_or_tasks(zookeeper_server: ZooKeeperServer) -> None:
    before = set(threading.enumerate())
    with ZooKeeperProxy(zookeeper_server.host, zookeeper_server.port) as proxy:
        session = SilentSession(proxy.host, proxy.port, 30.0)
        proxy.black_hole_all()  # closing must not wait for heal()
    session.close()
    eventually(lambda: not new_threads(before))
    with pytest.raises(RuntimeError, match="not running"):
        proxy.refuse()
    proxy.close()  # twice is fine
