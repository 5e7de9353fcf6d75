"""Registers on ZooKeeper: where their nodes are, who is present, and which registers are forgotten."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

import holdfast
from holdfast.engines.registers import Cell, Look, RegisterKey, Stale, Standing
from holdfast.engines.zookeeper import presences
from tests.servers.zookeeper import BASE, ZooKeeperServer
from tests.support.waiting import eventually
from tests.zookeeper.register_client import RegisterClient

KEY = RegisterKey("orders", "condition:full")
STATE = RegisterKey("orders", "monitor", durable=True)
#: It is removed by then, even after a scheduler stall.
SOON = 20.0


@pytest.fixture
def one(zookeeper_server: ZooKeeperServer) -> Iterator[RegisterClient]:
    with RegisterClient(zookeeper_server.url) as client:
        yield client


@pytest.fixture
def two(zookeeper_server: ZooKeeperServer) -> Iterator[RegisterClient]:
    with RegisterClient(zookeeper_server.url) as client:
        yield client


def test_registers_are_neither_contenders_nor_locks(
    one: RegisterClient, zookeeper_server: ZooKeeperServer, plain: KazooClient
) -> None:
    guard = one.hold("orders")
    one.load(KEY, guard)
    one.load(STATE, guard)
    assert len(plain.get_children(f"{BASE}/orders")) == 1, "the holder alone"
    with holdfast.connect(zookeeper_server.url) as locks:
        assert [state.name for state in locks.locks()] == ["orders"]
        one.release()
        assert list(locks.locks()) == []


def test_a_holder_whose_node_was_removed_can_neither_load_nor_store(one: RegisterClient, plain: KazooClient) -> None:
    guard = one.hold("orders")
    assert one.load(KEY, guard) == Cell()
    (node,) = plain.get_children(f"{BASE}/orders")
    plain.delete(f"{BASE}/orders/{node}")
    assert one.store(KEY, guard, 0, value=b"late") == Stale(guard.token, 0)
    assert one.load(KEY, guard) == Stale(guard.token, 0)
    assert one.peek(KEY) == Cell()


def test_a_waiter_that_looks_no_more_is_absent_though_its_session_lives(
    one: RegisterClient, two: RegisterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = one.hold("orders")
    one.load(KEY, guard)
    assert one.store(KEY, guard, 0, queue="full=w1:N,w2:W", join="w1") == 1
    assert two.look(KEY, "w2") == Look(Standing.WAITING)
    monkeypatch.setattr(presences, "PRESENCE", 0.3)
    one.look(KEY, "w1")
    eventually(lambda: "w1" not in one.peek(KEY).present, SOON)
    assert two.look(KEY, "w2").orphan
    one.look(KEY, "w1")
    assert "w1" in one.peek(KEY).present, "it is back"


def test_waiters_that_have_left_the_queue_leave_no_nodes(one: RegisterClient) -> None:
    guard = one.hold("orders")
    one.load(KEY, guard)
    listener = one.armed(KEY, "w1")
    assert one.store(KEY, guard, 0, queue="full=w1:W,w2:W", join="w1") == 1
    assert one.peek(KEY).present == {"w1"}
    assert one.store(KEY, guard, 1, queue="full=w2:W") == 2
    eventually(lambda: one.peek(KEY).present == frozenset(), SOON)
    listener.close()
    eventually(lambda: len(one.session._hub.presences) == 0, SOON)


def test_a_value_that_a_server_would_not_accept_is_refused_before_it_is_sent(one: RegisterClient) -> None:
    guard = one.hold("orders")
    one.load(STATE, guard)
    with pytest.raises(holdfast.EngineRefused, match="too many"):
        one.store(STATE, guard, 0, value=bytes(1 << 20))
    with pytest.raises(holdfast.EngineRefused, match="too many"):
        one.swap(STATE, 0, bytes(1 << 20))
    assert one.store(STATE, guard, 0, value=bytes(1_000_000)) == 1, "the connection was not closed"


def test_unused_registers_are_removed_and_users_data_is_not(
    zookeeper_server: ZooKeeperServer, plain: KazooClient
) -> None:
    with RegisterClient(f"{zookeeper_server.url}&ttl=1s&token_ttl=1s") as client:
        client.swap(RegisterKey("old", "latch"), 0, b"open")
        client.swap(RegisterKey("old", "monitor", durable=True), 0, b"data")

        def is_removed() -> bool:
            # A new register each time: each creation looks at others.
            client.swap(RegisterKey("new", f"latch-{next(numbers)}"), 0, b"")
            return client.peek(RegisterKey("old", "latch")) == Cell()

        numbers = iter(range(10_000))
        eventually(is_removed, SOON)
        assert client.peek(RegisterKey("old", "monitor", durable=True)).value == b"data"
    assert plain.exists(f"{BASE}/%registers/old/latch") is None
