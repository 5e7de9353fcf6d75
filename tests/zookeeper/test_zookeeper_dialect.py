"""The nodes in ZooKeeper have Curator's format: checked with a plain client, as a Java program would see them."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable
from functools import partial

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import holdfast
from holdfast.engines.zookeeper import order
from tests.servers.zookeeper import BASE, ZooKeeperServer
from tests.support.calls import Call
from tests.support.waiting import eventually
from tests.zookeeper.conftest import Connect
from tests.zookeeper.support import SOON, connection_of, nodes

CONTENDER = re.compile(r"_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-lock-[0-9]{10}")


def java(plain: KazooClient, name: str) -> str:
    """Create a node as Curator's InterProcessMutex does; return its name."""
    path = f"{BASE}/{name}/_c_{uuid.uuid4()}-lock-"
    made: str = plain.create(path, b"127.0.0.1", ephemeral=True, sequence=True, makepath=True)
    return made.rpartition("/")[2]


def test_a_held_lock_is_one_protected_ephemeral_sequential_node(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    with locks.lock("orders") as lease:
        (node,) = nodes(plain, "orders")
        assert CONTENDER.fullmatch(node)
        data, stat = plain.get(f"{BASE}/orders/{node}")
        assert stat.ephemeralOwner == connection_of(locks).session
        assert lease.token == stat.czxid
        about = json.loads(data)
        assert (about["owner"], about["pid"], about["ttl"]) == (lease.owner, os.getpid(), 30.0)
    assert nodes(plain, "orders") == []


def test_waiters_have_their_own_nodes_and_enter_in_sequence_order(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    held = locks.lock("a").acquire()
    entered: list[int] = []
    calls = []
    for number in range(3):
        calls.append(Call(partial(_enter, locks, "a", partial(entered.append, number))))
        eventually(partial(_is_long, plain, number + 2))
    held.release()
    for call in calls:
        call.result()
    assert entered == [0, 1, 2]


def _is_long(plain: KazooClient, length: int) -> bool:
    return len(nodes(plain, "a")) == length


def _enter(locks: holdfast.Client, name: str, body: Callable[[], None]) -> None:
    with locks.lock(name):
        body()


def test_inspect_lists_the_queue_in_curators_order_with_the_data_of_each_node(
    connect: Connect, plain: KazooClient
) -> None:
    locks, others = connect(label="ours"), connect()
    first = java(plain, "a")
    call = Call(lambda: locks.lock("a").acquire(timeout=SOON))
    eventually(lambda: others.inspect("a").waiters == 1)
    last = java(plain, "a")
    state = others.inspect("a")
    assert [holder.owner for holder in state.holders] == [first]
    ours, theirs = state.queue
    assert (ours.label, ours.pid, state.waiters) == ("ours", os.getpid(), 2)
    assert (theirs.owner, theirs.host, theirs.label) == (last, None, None)
    assert theirs.since is not None
    token = plain.get(f"{BASE}/a/{first}")[1].czxid
    assert state.holders[0].token == token
    assert others.break_("a", token=plain.get(f"{BASE}/a/{last}")[1].czxid) is False  # a waiter: it holds nothing
    assert others.break_("a", token=token) is True
    lease = call.result()
    assert (lease.owner, nodes(plain, "a")[-1]) == (ours.owner, last)
    assert others.break_("a", token=token) is False
    lease.release()


def test_a_java_holder_excludes_us_and_we_queue_behind_it(connect: Connect, plain: KazooClient) -> None:
    """A Java process holds, we wait, and another Java process waits behind us."""
    locks = connect()
    first = java(plain, "a")
    assert locks.lock("a").try_acquire() is None
    assert nodes(plain, "a") == [first]
    waiting = Call(locks.lock("a").acquire)
    eventually(lambda: len(nodes(plain, "a")) == 2)
    last = java(plain, "a")
    (holder,) = locks.inspect("a").holders
    assert (holder.owner, holder.pid, locks.inspect("a").waiters) == (first, None, 2)
    plain.delete(f"{BASE}/a/{first}")
    lease = waiting.result()
    assert nodes(plain, "a")[1:] == [last]
    assert lease.held
    lease.release()
    assert nodes(plain, "a") == [last]
    assert locks.lock("a").try_acquire() is None


def test_each_waiter_watches_only_its_predecessor(
    connect: Connect, plain: KazooClient, zookeeper_server: ZooKeeperServer
) -> None:
    clients = [connect() for _ in range(3)]
    first = java(plain, "a")
    waiting = []
    for number, locks in enumerate(clients):
        waiting.append(Call(locks.lock("a").acquire))
        eventually(partial(_is_long, plain, number + 2))
    queue = nodes(plain, "a")

    def watched() -> dict[str, int]:
        paths = re.findall(rf"^{BASE}/a/(\S+)\n((?:\t\S+\n)*)", zookeeper_server.ask("wchp"), re.MULTILINE)
        return {path: sessions.count("\t") for path, sessions in paths}

    eventually(lambda: watched() == dict.fromkeys(queue[:3], 1))
    plain.delete(f"{BASE}/a/{first}")
    for call in waiting:
        call.result().release()


def test_foreign_node_blocks_only_if_it_sorts_before_the_contenders(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    plain.create(f"{BASE}/a/zeta", makepath=True)
    locks.lock("a").acquire(timeout=SOON).release()
    plain.create(f"{BASE}/a/-odd")
    assert locks.lock("a").try_acquire() is None
    waiting = Call(locks.lock("a").acquire)
    eventually(lambda: len(nodes(plain, "a")) == 3)
    plain.delete(f"{BASE}/a/-odd")
    waiting.result().release()


def test_parents_are_containers_and_are_recreated_after_the_servers_removed_them(
    start_zookeeper: Callable[..., ZooKeeperServer], connect: Connect
) -> None:
    server = start_zookeeper(containers=0.05)
    locks, plain = connect(server.url), server.client()
    tokens = []
    for _ in range(3):
        with locks.lock("a") as lease:
            tokens.append(lease.token)
            assert nodes(plain, "a")[0].endswith("0000000000"), "sequence numbers restart, so they cannot be tokens"
        eventually(lambda: plain.exists(BASE) is None)
    assert tokens == sorted(set(tokens))


def test_lock_removed_with_its_waiters_is_recreated(connect: Connect, plain: KazooClient) -> None:
    locks, others = connect(), connect()
    held = locks.lock("a").acquire()
    waiting = Call(others.lock("a").acquire)
    eventually(lambda: len(nodes(plain, "a")) == 2)
    removal = plain.transaction()
    for path in (*(f"{BASE}/a/{node}" for node in nodes(plain, "a")), f"{BASE}/a"):
        removal.delete(path)
    assert removal.commit() == [True] * 3
    lease = waiting.result()
    assert lease.token > held.token
    with pytest.raises(holdfast.LockLost, match="broken"):
        held.release()
    assert len(nodes(plain, "a")) == 1
    lease.release()


def test_every_name_is_encoded_as_one_node(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    names = {"a/b": "a%2Fb", "..": "%2E%2E", ".": "%2E", "50%": "50%25", "line\n": "line%0A", "zookeeper": "zookeeper"}
    leases = [locks.lock(name).acquire() for name in names]
    assert sorted(plain.get_children(BASE)) == sorted(names.values())
    assert {state.name for state in locks.locks()} == set(names)
    for lease in leases:
        lease.release()


def test_without_a_base_locks_are_at_the_root(connect: Connect, zookeeper_server: ZooKeeperServer) -> None:
    plain = zookeeper_server.client()
    locks = connect(f"zookeeper://{zookeeper_server.address}?tick=0.1")
    with locks.lock("a"):
        assert len(nodes(plain, "a", base="")) == 1
        assert [state.name for state in locks.locks()] == ["a"]
    with pytest.raises(holdfast.InvalidName):
        locks.lock("zookeeper")


def test_lock_near_the_sequence_wrap_is_refused_and_leaves_no_node(
    connect: Connect, plain: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = connect()
    monkeypatch.setattr(order, "LAST_SEQUENCE", 1)
    for _ in range(2):
        locks.lock("a").acquire().release()
    with pytest.raises(holdfast.EngineRefused, match="2\\^31"):
        locks.lock("a").acquire()
    assert nodes(plain, "a") == []


def test_break_removes_the_head_of_the_queue_even_if_java_created_it(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    first, second = java(plain, "a"), java(plain, "a")
    assert locks.break_("a") is True
    assert nodes(plain, "a") == [second]
    with pytest.raises(NoNodeError):
        plain.get(f"{BASE}/a/{first}")
