"""Semaphores as Curator's InterProcessSemaphoreV2 lays them out, and what lost replies leave of them."""

from __future__ import annotations

import asyncio
import json
import re
import struct
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from kazoo.client import KazooClient

import holdfast
from holdfast.engines.zookeeper import permits
from tests.servers.zookeeper import BASE, ZooKeeperServer
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.servers.zookeeper_wire import Op
from tests.support.calls import Call
from tests.support.waiting import eventually, until
from tests.zookeeper.conftest import Connect
from tests.zookeeper.support import LONG_TIMEOUT, SOON, end_session, hub_of, is_waiting

LEASE = re.compile(r"_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-lease-[0-9]{10}")


def children(plain: KazooClient, folder: str) -> list[str]:
    path = f"{BASE}/a/{folder}"
    found: list[str] = plain.get_children(path) if plain.exists(path) else []
    return sorted(found)


def size(plain: KazooClient) -> int:
    data, _ = plain.get(f"{BASE}/a/permits")
    return int(struct.unpack(">i", data)[0])


def java(plain: KazooClient, folder: str, marker: str) -> str:
    """Create a node as Curator does; return its path."""
    path = f"{BASE}/a/{folder}/_c_{uuid.uuid4()}-{marker}"
    made: str = plain.create(path, b"127.0.0.1", ephemeral=True, sequence=True, makepath=True)
    return made


def nothing_is_kept(locks: holdfast.Client | holdfast.aio.AsyncClient) -> bool:
    return len(hub_of(locks)) == 0 and len(hub_of(locks).leftovers) == 0


def test_permits_are_curators_leases_created_in_one_step_in_exchange_for_the_place(
    connect: Connect, plain: KazooClient
) -> None:
    lease = connect().semaphore("a", 3).acquire(2)
    leases = children(plain, "leases")
    assert len(leases) == 2
    assert all(LEASE.fullmatch(node) for node in leases)
    stats = [plain.get(f"{BASE}/a/leases/{node}")[1] for node in leases]
    assert {stat.czxid for stat in stats} == {lease.token}
    assert all(stat.ephemeralOwner for stat in stats)
    assert json.loads(plain.get(f"{BASE}/a/leases/{leases[0]}")[0])["owner"] == lease.owner
    assert children(plain, "locks") == []
    assert size(plain) == 3
    lease.release()
    assert children(plain, "leases") == []


def test_permits_of_java_count_and_its_place_in_the_queue_is_respected(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    semaphore = locks.semaphore("a", 2)
    theirs = java(plain, "leases", "lease-")
    ours = semaphore.acquire()
    assert semaphore.try_acquire() is None
    state = locks.inspect("a")
    assert (state.kind, state.size, state.free) == ("semaphore", 2, 0)
    assert {holder.owner for holder in state.holders} == {ours.owner, theirs.rpartition("/")[2]}
    assert [holder.count for holder in state.holders] == [1, 1]
    ours.release()
    head = java(plain, "locks", "lock-")
    waiting = Call(semaphore.acquire)
    eventually(lambda: locks.inspect("a").waiters == 2)
    assert len(children(plain, "leases")) == 1
    plain.delete(head)
    lease = waiting.result()
    plain.delete(theirs)
    lease.release()


def test_size_that_java_has_written_counts_and_its_change_wakes_the_head(connect: Connect, plain: KazooClient) -> None:
    plain.create(f"{BASE}/a/permits", struct.pack(">i", 1), makepath=True)
    locks = connect()
    semaphore = locks.semaphore("a", 5)
    held = semaphore.acquire()
    waiting = Call(semaphore.acquire)
    eventually(lambda: is_waiting(locks))
    assert children(plain, "leases") != []
    plain.set(f"{BASE}/a/permits", struct.pack(">i", 2))
    lease = waiting.result(2.0)
    held.release()
    lease.release()


def test_size_that_is_not_a_number_is_refused_with_its_path(connect: Connect, plain: KazooClient) -> None:
    plain.create(f"{BASE}/a/permits", b"three", makepath=True)
    with pytest.raises(holdfast.EngineRefused, match="/a/permits is not a number of four bytes"):
        connect().semaphore("a", 5).acquire()
    eventually(lambda: children(plain, "locks") == [])


def test_shrinking_ends_the_wait_of_a_claim_behind_the_head_that_can_never_be_granted(
    connect: Connect, plain: KazooClient
) -> None:
    locks, others = connect(), connect()
    held = locks.semaphore("a", 3).acquire(3)
    head = Call(locks.semaphore("a", 3).acquire)
    eventually(lambda: len(children(plain, "locks")) == 1)
    others.ping()
    behind = Call(lambda: others.semaphore("a", 3).acquire(3))
    eventually(lambda: len(children(plain, "locks")) == 2 and is_waiting(others))
    locks.semaphore("a", 3).resize(2)
    with pytest.raises(holdfast.UsageError, match="3 permits were asked for, and it has 2"):
        behind.result(2.0)
    assert len(children(plain, "locks")) == 1
    held.release()
    head.result().release()


def test_single_tries_at_the_same_moment_all_get_a_free_permit(connect: Connect) -> None:
    """Each holds the queue for a moment: the others must not take that for a busy semaphore."""
    clients = [connect() for _ in range(4)]
    for locks in clients:
        locks.ping()
    semaphores = [locks.semaphore("a", 8) for locks in clients]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            leases = [each.result() for each in [pool.submit(semaphores[n % 4].try_acquire) for n in range(8)]]
            assert all(leases)
            assert semaphores[0].try_acquire() is None
            for lease in leases:
                assert lease is not None
                lease.release()


def test_single_try_does_not_wait_behind_a_head_that_waits_for_more(connect: Connect, plain: KazooClient) -> None:
    locks, others = connect(), connect()
    held = locks.semaphore("a", 3).acquire(2)
    many = Call(lambda: others.semaphore("a", 3).acquire(3))
    eventually(lambda: len(children(plain, "locks")) == 1)
    assert locks.semaphore("a", 3).try_acquire() is None, "one is free, but the head has not got its three"
    held.release()
    many.result().release()


def test_lease_that_loses_one_of_its_permits_is_lost_and_returns_the_rest(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    lease = locks.semaphore("a", 3).acquire(3)
    eventually(lambda: all(len(place.watched) == 3 for place in hub_of(locks)._places.values()))
    plain.delete(f"{BASE}/a/leases/{children(plain, 'leases')[1]}")
    assert lease.lost.wait(3.0)
    assert lease.lost_reason == "broken"
    eventually(lambda: children(plain, "leases") == [])


def test_more_permits_than_fit_one_request_are_refused(connect: Connect, plain: KazooClient) -> None:
    room = permits.Room.of([], None, 100_000)
    assert room.impossible(1000, f"{BASE}/a/leases/{'x' * 60}") is None
    with pytest.raises(holdfast.UsageError, match="ZooKeeper grants at most"):
        connect().semaphore("a", 100_000).acquire(50_000)
    assert children(plain, "locks") == []


@pytest.mark.timeout(120)
def test_the_largest_request_that_is_allowed_is_granted(connect: Connect, plain: KazooClient) -> None:
    # Thousands of nodes in one request: a busy server takes seconds for it, and the lease has to last until it is back.
    semaphore = connect(request_timeout=5 * LONG_TIMEOUT, ttl=6 * LONG_TIMEOUT).semaphore("a", 100_000)
    path = f"{BASE}/a/leases/_c_{uuid.uuid4()}-lock-0000000000"
    most = max(n for n in range(10_000) if permits.Room.of([], None, 0).impossible(n, path) is None)
    lease = semaphore.acquire(most)
    assert len(children(plain, "leases")) == most
    lease.release()
    assert children(plain, "leases") == []


# ---- lost requests and replies, by the step


@pytest.mark.parametrize("fault", ["drop_reply_and_reset", "drop_request_and_reset"])
@pytest.mark.parametrize("op", [Op.CREATE2, Op.GET_CHILDREN, Op.GET_DATA, Op.MULTI])
def test_acquire_that_loses_a_message_takes_its_permits_once(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient, op: Op, fault: str
) -> None:
    locks = connect(proxied, request_timeout=LONG_TIMEOUT)
    semaphore = locks.semaphore("a", 4)
    semaphore.acquire().release()  # creates the parent nodes
    lost = getattr(proxy.on(op), fault)()
    lease = semaphore.acquire(2, timeout=SOON)
    assert lost.fired
    leases = children(plain, "leases")
    assert len(leases) == 2
    assert plain.exists(f"{BASE}/a/leases/{leases[0]}").czxid == lease.token
    assert children(plain, "locks") == []
    lease.release()
    assert children(plain, "leases") == []
    assert nothing_is_kept(locks)


@pytest.mark.parametrize("fault", ["drop_reply_and_reset", "drop_request_and_reset"])
def test_release_that_loses_a_message_returns_all_permits(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient, fault: str
) -> None:
    locks = connect(proxied, request_timeout=LONG_TIMEOUT)
    lease = locks.semaphore("a", 3).acquire(3)
    lost = getattr(proxy.on(Op.DELETE, nth=2), fault)()
    lease.release()
    assert lost.fired
    assert children(plain, "leases") == []
    assert nothing_is_kept(locks)


@pytest.mark.parametrize("op", [Op.CREATE2, Op.MULTI])
async def test_acquire_cancelled_before_its_answer_leaves_neither_place_nor_permit(
    proxy: ZooKeeperProxy, proxied: str, plain: KazooClient, op: Op
) -> None:
    async with holdfast.aio.connect(proxied, request_timeout=LONG_TIMEOUT) as locks:
        semaphore = locks.semaphore("a", 2)
        await (await semaphore.acquire()).release()
        held_back, removed = proxy.on(op).delay(), proxy.on(Op.DELETE).notice()
        acquiring = asyncio.create_task(semaphore.acquire(2))
        await until(lambda: held_back.fired)
        acquiring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acquiring
        held_back.release()
        await until(lambda: removed.fired)
        await until(lambda: children(plain, "locks") == children(plain, "leases") == [])
        await until(lambda: nothing_is_kept(locks))


def test_waiting_claim_whose_session_ends_queues_again_and_a_holder_has_lost_its_permits(
    connect: Connect, plain: KazooClient, zookeeper_server: ZooKeeperServer
) -> None:
    locks, others = connect(), connect()
    held = locks.semaphore("a", 2).acquire(2)
    others.ping()
    waiting = Call(lambda: others.semaphore("a", 2).acquire(2))
    eventually(lambda: is_waiting(others))
    end_session(zookeeper_server, others)
    eventually(lambda: len(children(plain, "locks")) == 1 and is_waiting(others))
    end_session(zookeeper_server, locks)
    lease = waiting.result(2 * SOON)
    eventually(lambda: not held.held)
    assert held.lost_reason == "session"
    assert len(children(plain, "leases")) == 2
    lease.release()
