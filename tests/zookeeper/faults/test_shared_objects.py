"""Clients of read-write locks and semaphores that are killed, or frozen for longer than their sessions live."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

import holdfast
from holdfast._runtime import clock
from tests.servers.zookeeper import BASE, ZooKeeperServer
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.servers.zookeeper_wire import Op
from tests.support.calls import Call
from tests.support.child import Child
from tests.support.waiting import eventually

#: Long enough that a scheduler stall does not end the session early.
TTL = 2.0
#: The allowed delay after the session's time-out; a busy machine adds to it.
GRACE = 3.0


@pytest.fixture
def locks(zookeeper_server: ZooKeeperServer) -> Iterator[holdfast.Client]:
    with holdfast.connect(zookeeper_server.url, ttl=10.0) as client:
        client.ping()
        yield client


def test_killed_waiting_writer_and_killed_holders_cost_their_session_timeout(
    zookeeper_server: ZooKeeperServer, locks: holdfast.Client
) -> None:
    with Child(zookeeper_server.url, ttl=TTL) as waiter, Child(zookeeper_server.url, ttl=TTL) as holder:
        reading = locks.rwlock("queued").read.acquire()
        waiter.send("locks.rwlock('queued').write.acquire()")
        eventually(lambda: locks.inspect("queued").waiters == 1)
        holder.do("keep.update(permits=locks.semaphore('slots', 2).acquire(2))")
        holder.do("keep.update(write=locks.rwlock('held').write.acquire())")
        holder.do("keep.update(read=locks.rwlock('held').read.acquire())")
        behind = [
            Call(lambda: locks.rwlock("queued").read.acquire(timeout=20)),
            Call(lambda: locks.rwlock("held").write.acquire(timeout=20)),
            Call(lambda: locks.semaphore("slots", 2).acquire(2, timeout=20)),
        ]
        eventually(lambda: [locks.inspect(name).waiters for name in ("queued", "held", "slots")] == [2, 1, 1])
        waiter.kill()
        holder.kill()
        killed = clock.now()
        leases = [call.result(20) for call in behind]
        assert clock.now() - killed < TTL + GRACE
        assert all(lease.held for lease in (reading, *leases))
        for lease in (reading, *leases):
            lease.release()


def test_client_frozen_at_the_exchange_for_permits_gets_new_ones_and_frozen_holders_know_their_loss(
    zookeeper_server: ZooKeeperServer, proxy: ZooKeeperProxy, proxied: str, locks: holdfast.Client, plain: KazooClient
) -> None:
    """The answer to the exchange waits in the socket while the permits are removed: such a grant must not be used."""
    leases = f"{BASE}/slots/leases"
    with Child(proxied, ttl=TTL) as victim:
        victim.do("locks.semaphore('slots', 2).acquire().release()")
        victim.do("keep.update(read=locks.rwlock('held').read.acquire())")
        exchange = proxy.on(Op.MULTI).delay()
        victim.send("keep.update(permits=locks.semaphore('slots', 2).acquire(2)) or keep['permits'].token")
        assert exchange.wait(5)
        victim.freeze()
        exchange.release()
        eventually(lambda: len(plain.get_children(leases)) == 2)
        dead = plain.exists(f"{leases}/{plain.get_children(leases)[0]}").czxid
        with locks.rwlock("held").write.acquire(timeout=TTL + GRACE):
            assert plain.get_children(leases) == []
            victim.wake()
            token = victim.answer()
            assert token > dead
            assert victim.do("keep['permits'].held")
            assert len(plain.get_children(leases)) == 2
            assert victim.do("keep['read'].held") is False
            assert victim.do("error_of(keep['read'].check)").startswith("LockLost:")
        victim.do("keep['permits'].release()")
    assert plain.get_children(leases) == []
