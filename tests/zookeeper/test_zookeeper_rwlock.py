"""Read-write locks as Curator's InterProcessReadWriteLock lays them out: checked with a plain client."""

from __future__ import annotations

import json
import re
import uuid
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.client import KazooClient

import holdfast
from holdfast.engines.base import Kind
from holdfast.engines.zookeeper import layout, order
from tests.servers.zookeeper import BASE, ZooKeeperServer
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.servers.zookeeper_wire import Op
from tests.support.calls import Call
from tests.support.waiting import eventually
from tests.zookeeper.conftest import Connect
from tests.zookeeper.support import LONG_TIMEOUT, SOON, end_session, hub_of, is_waiting

ID = r"_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-"


def nodes(plain: KazooClient, name: str) -> list[str]:
    found: list[str] = plain.get_children(f"{BASE}/{name}") if plain.exists(f"{BASE}/{name}") else []
    return order.ordered(found, order.READ_WRITE)


def java(plain: KazooClient, name: str, marker: str) -> str:
    """Create a node as Curator does; return its path."""
    made: str = plain.create(f"{BASE}/{name}/_c_{uuid.uuid4()}-{marker}", ephemeral=True, sequence=True, makepath=True)
    return made


def nothing_is_kept(locks: holdfast.Client) -> bool:
    return len(hub_of(locks)) == 0 and len(hub_of(locks).leftovers) == 0


def test_reader_and_writer_have_curators_nodes_and_their_transactions_as_tokens(
    connect: Connect, plain: KazooClient
) -> None:
    rwlock = connect().rwlock("a")
    for lock, marker in ((rwlock.read, "__READ__"), (rwlock.write, "__WRIT__")):
        with lock as lease:
            (node,) = nodes(plain, "a")
            assert re.fullmatch(f"{ID}{marker}[0-9]{{10}}", node)
            data, stat = plain.get(f"{BASE}/a/{node}")
            assert (lease.token, json.loads(data)["owner"]) == (stat.czxid, lease.owner)
    assert nodes(plain, "a") == []


def test_read_inside_a_write_has_its_number_and_its_token(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    rwlock = locks.rwlock("a")
    writing = rwlock.write.acquire()
    java(plain, "a", "__WRIT__")
    reading = rwlock.read.acquire(timeout=SOON)
    (write,) = [node for node in nodes(plain, "a")[:2] if "__WRIT__" in node]
    (read,) = [node for node in nodes(plain, "a")[:2] if "__READ__" in node]
    assert read[-10:] == write[-10:]
    assert reading.token == writing.token
    assert {holder.token for holder in locks.inspect("a").holders} == {writing.token}
    writing.release()
    assert nodes(plain, "a")[0] == read, "it stays before the writer that waits"
    (holder,) = locks.inspect("a").holders
    assert (holder.token, holder.mode) == (writing.token, "read")
    reading.release()


def test_break_with_the_token_of_a_write_takes_the_read_inside_it_too(connect: Connect, plain: KazooClient) -> None:
    locks, others = connect(), connect()
    writing = locks.rwlock("a").write.acquire()
    reading = locks.rwlock("a").read.acquire()
    assert others.break_("a", token=writing.token + 1) is False
    assert others.break_("a", token=writing.token) is True
    assert nodes(plain, "a") == []
    for lease in (writing, reading):
        with pytest.raises(holdfast.LockLost, match="broken"):
            lease.release()


def test_reader_waits_only_for_the_nearest_writer_and_a_writer_for_anything_before_it(
    connect: Connect, plain: KazooClient, zookeeper_server: ZooKeeperServer
) -> None:
    reader, writer = connect(), connect()
    first, second, reads = (java(plain, "a", marker) for marker in ("__WRIT__", "__WRIT__", "__READ__"))
    reading = Call(reader.rwlock("a").read.acquire)
    eventually(lambda: len(nodes(plain, "a")) == 4)
    behind = f"{BASE}/a/{nodes(plain, 'a')[3]}"
    writing = Call(writer.rwlock("a").write.acquire)

    def watched() -> set[str]:
        return set(re.findall(rf"^({BASE}/a/\S+)$", zookeeper_server.ask("wchp"), re.MULTILINE))

    eventually(lambda: watched() == {second, behind})
    plain.delete(first)
    plain.delete(second)
    lease = reading.result()
    assert lease.held
    plain.delete(reads)
    lease.release()
    writing.result().release()


def test_foreign_children_block_writers_as_they_do_in_curator_and_not_readers(
    connect: Connect, plain: KazooClient
) -> None:
    rwlock = connect().rwlock("a")
    plain.create(f"{BASE}/a/-odd", makepath=True)
    with rwlock.read:
        pass
    assert rwlock.write.try_acquire() is None
    plain.delete(f"{BASE}/a/-odd")
    with rwlock.write:
        pass


# ---- kinds


def holding(locks: holdfast.Client, kind: str) -> Any:
    """An object of this kind."""
    if kind == "lock":
        return locks.lock("a")
    return locks.rwlock("a").read if kind == "rwlock" else locks.semaphore("a", 2)


@pytest.mark.parametrize("first, second", [*combinations(("lock", "rwlock", "semaphore"), 2), ("semaphore", "lock")])
def test_claim_of_another_kind_is_refused_and_leaves_nothing(
    connect: Connect, plain: KazooClient, first: str, second: str
) -> None:
    locks, others = connect(), connect()
    lease = holding(locks, first).acquire()
    before = sorted(plain.get_children(f"{BASE}/a"))
    for _ in range(2):
        with pytest.raises(holdfast.EngineRefused, match=f"in use as a {first}, not as a {second}"):
            holding(others, second).acquire()
    eventually(lambda: sorted(plain.get_children(f"{BASE}/a")) == before)
    assert lease.held
    lease.release()


def test_of_two_kinds_that_meet_the_later_is_refused() -> None:
    lock, read = f"_c_{uuid.uuid4()}-lock-0000000004", f"_c_{uuid.uuid4()}-__READ__0000000005"
    assert layout.other_kind([lock, read], Kind.LOCK, 4) is None
    assert layout.other_kind([lock, read], Kind.RWLOCK, 5) is Kind.LOCK
    assert layout.other_kind(["locks", read], Kind.RWLOCK, 5) is None, "left behind by a claim that was refused"
    assert layout.other_kind(["permits", lock], Kind.LOCK, 4) is Kind.SEMAPHORE
    assert layout.kind_of(["zeta", read]) is Kind.RWLOCK


# ---- order

queues = st.lists(st.sampled_from([order.READ, order.WRITE]), min_size=1, max_size=8).map(
    lambda marks: [f"_c_{uuid.uuid4()}-{mark}{number:010d}" for number, mark in enumerate(marks)]
)


def test_resize_of_a_name_of_another_kind_is_refused(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    with locks.lock("a"):
        with pytest.raises(holdfast.EngineRefused, match="in use as a lock, not as a semaphore"):
            locks.semaphore("a", 2).resize(3)
        assert plain.exists(f"{BASE}/a/permits") is None


@given(queues)
def test_those_that_hold_are_those_that_nothing_excludes(queue: list[str]) -> None:
    """What inspect shows is what each contender finds out for itself."""
    free = [each for each in queue if order.conflicting(queue, each, shared=order.READ in each) is None]
    holding, waiting = order.divided(queue, order.READ_WRITE)
    assert holding == free
    assert holding + waiting == queue
    assert len(holding) == 1 or all(order.READ in each for each in holding)


def test_a_node_with_the_same_number_is_of_the_same_caller() -> None:
    write = f"_c_{uuid.uuid4()}-__WRIT__0000000003"
    read, behind = layout.nested(str(uuid.uuid4()), write), f"_c_{uuid.uuid4()}-__WRIT__0000000004"
    for queue in ([read, write, behind], [write, read, behind]):
        assert order.conflicting(queue, write, shared=False) is None
        assert order.conflicting(queue, read, shared=True) is None
        assert order.conflicting(queue, behind, shared=False) in (read, write)
        assert order.divided(queue, order.READ_WRITE) == (queue[:2], [behind])


# ---- lost replies, ended sessions


@pytest.mark.parametrize("mode", ["read", "write"])
@pytest.mark.parametrize("op", [Op.CREATE2, Op.GET_CHILDREN])
def test_acquire_whose_reply_is_lost_finds_its_node(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient, op: Op, mode: str
) -> None:
    locks = connect(proxied, request_timeout=LONG_TIMEOUT)
    with locks.rwlock("a").read:
        pass  # creates the parent nodes
    lost = proxy.on(op).drop_reply_and_reset()
    lease = getattr(locks.rwlock("a"), mode).acquire(timeout=SOON)
    assert lost.fired
    (node,) = nodes(plain, "a")
    assert plain.exists(f"{BASE}/a/{node}").czxid == lease.token
    lease.release()
    assert nodes(plain, "a") == []
    assert nothing_is_kept(locks)


@pytest.mark.parametrize("fault", ["drop_reply_and_reset", "drop_request_and_reset"])
def test_nested_read_whose_request_or_reply_is_lost_is_granted_once(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient, fault: str
) -> None:
    locks = connect(proxied, request_timeout=LONG_TIMEOUT)
    writing = locks.rwlock("a").write.acquire()
    java(plain, "a", "__WRIT__")
    lost = getattr(proxy.on(Op.MULTI), fault)()
    reading = locks.rwlock("a").read.acquire(timeout=SOON)
    assert lost.fired
    assert reading.token == writing.token
    assert len(nodes(plain, "a")) == 3
    writing.release()
    assert "__READ__" in nodes(plain, "a")[0]
    reading.release()
    assert len(nodes(plain, "a")) == 1
    assert nothing_is_kept(locks)


def test_nested_read_of_a_write_that_is_removed_meanwhile_waits_in_the_queue(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient
) -> None:
    """The step that creates the read checks the write: no read is granted under a write that is gone."""
    locks, others = connect(proxied, request_timeout=LONG_TIMEOUT), connect()
    held_back = proxy.on(Op.MULTI).delay()

    def read_inside_a_write() -> tuple[holdfast.Lease, holdfast.Lease]:
        writing = locks.rwlock("a").write.acquire()
        return writing, locks.rwlock("a").read.acquire()

    nested = Call(read_inside_a_write)
    eventually(lambda: held_back.fired)
    queued = java(plain, "a", "__WRIT__")
    assert others.break_("a") is True
    held_back.release()
    eventually(lambda: len(nodes(plain, "a")) == 2)
    assert nodes(plain, "a")[0] == queued.rpartition("/")[2], "the queued writer holds"
    plain.delete(queued)
    writing, reading = nested.result()
    eventually(lambda: not writing.held)
    assert reading.held
    assert reading.token > writing.token
    reading.release()


def test_waiting_writer_whose_session_ends_queues_again(
    connect: Connect, plain: KazooClient, zookeeper_server: ZooKeeperServer
) -> None:
    locks, others = connect(), connect()
    reading = others.rwlock("a").read.acquire()
    locks.ping()
    writing = Call(locks.rwlock("a").write.acquire)
    eventually(lambda: is_waiting(locks))
    end_session(zookeeper_server, locks)
    eventually(lambda: len(nodes(plain, "a")) == 2)
    reading.release()
    writing.result(2 * SOON).release()


def test_reader_whose_session_ends_has_lost_its_lease_and_lets_a_writer_in(
    connect: Connect, zookeeper_server: ZooKeeperServer
) -> None:
    locks, others = connect(), connect()
    reading = locks.rwlock("a").read.acquire()
    others.ping()
    writing = Call(others.rwlock("a").write.acquire)
    eventually(lambda: is_waiting(others))
    end_session(zookeeper_server, locks)
    lease = writing.result()
    eventually(lambda: not reading.held)
    assert reading.lost_reason == "session"
    lease.release()
