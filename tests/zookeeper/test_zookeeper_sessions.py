"""A lock depends on a session: the meaning of its timeout, and the state of the lock after it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
from kazoo.client import KazooClient

import holdfast
from holdfast.engines.zookeeper.handler import MOMENT
from holdfast.engines.zookeeper.place import Place
from holdfast.engines.zookeeper.queue import Also, LockQueue
from tests.servers.zookeeper import BASE, ZooKeeperServer
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.servers.zookeeper_wire import Op
from tests.support.calls import Call
from tests.support.child import Child
from tests.support.waiting import eventually
from tests.zookeeper.conftest import Connect
from tests.zookeeper.support import LASTING, SOON, confirmed, connection_of, end_session, hub_of, is_waiting, nodes

Start = Callable[..., ZooKeeperServer]

# ---- the timeout


def test_session_timeout_is_the_clients_ttl_and_longer_ttls_share_it(
    connect: Connect, zookeeper_server: ZooKeeperServer, plain: KazooClient
) -> None:
    locks = connect(ttl=20)
    with locks.lock("a") as lease, locks.lock("b", ttl=60) as longer:
        assert (lease.ttl, longer.ttl) == (20.0, 20.0)
        owners = {plain.exists(f"{BASE}/{name}/{nodes(plain, name)[0]}").ephemeralOwner for name in "ab"}
        assert owners == {connection_of(locks, 20).session}
        assert 10 < lease.remaining < 20


def test_each_shorter_ttl_has_its_own_session(connect: Connect, plain: KazooClient) -> None:
    locks = connect(ttl=8)
    leases = [locks.lock(name, ttl=ttl).acquire() for name, ttl in (("a", 8), ("b", 4), ("c", 4), ("d", 5))]
    assert [lease.ttl for lease in leases] == [8.0, 4.0, 4.0, 5.0]
    owners = [plain.exists(f"{BASE}/{name}/{nodes(plain, name)[0]}").ephemeralOwner for name in "abcd"]
    assert owners[1] == owners[2]
    assert len(set(owners)) == 3
    for lease in leases:
        lease.release()


@pytest.mark.parametrize("ttl", [0.1, 120.0])
def test_ttl_that_the_servers_do_not_allow_is_a_usage_error(connect: Connect, ttl: float) -> None:
    """The servers would silently use another timeout: they allow 0.2 s to 60 s here."""
    locks = connect(ttl=ttl)
    for attempt in (locks.lock("a").acquire, locks.ping, lambda: locks.inspect("a")):
        with pytest.raises(holdfast.UsageError, match="do not allow sessions of"):
            attempt()
    if ttl < 1:
        wide = connect()
        with pytest.raises(holdfast.UsageError, match=r"do not allow sessions of 0\.1 s, but of 0\.2 s"):
            wide.lock("a", ttl=ttl).acquire()
        wide.lock("a").acquire().release()


def test_manual_renewal_renews_the_session_and_refuses_a_longer_ttl(connect: Connect) -> None:
    locks = connect(ttl=8)
    lease = locks.lock("a", renew=False).acquire()
    with pytest.raises(holdfast.UsageError, match="8 s"):
        lease.renew(ttl=9)
    for ttl in (8, 1, None):
        assert not lease.lost.wait(0.3)
        before = confirmed(lease)
        lease.renew(ttl=ttl)
        assert confirmed(lease) > before + 0.2
        assert lease.ttl == 8.0
    lease.release()


# ---- while holding


def test_end_of_the_session_is_reported_immediately(
    connect: Connect, zookeeper_server: ZooKeeperServer, plain: KazooClient
) -> None:
    locks = connect()
    lease = locks.lock("a").acquire()
    old = connection_of(locks).session
    began = time.monotonic()
    end_session(zookeeper_server, locks)
    assert lease.lost.wait(SOON)
    assert time.monotonic() - began < 4.0, "not by the next renewal"
    assert lease.lost_reason == "session"
    with pytest.raises(holdfast.LockLost, match="session"):
        lease.release()
    again = locks.lock("a").acquire(timeout=SOON)
    assert again.token > lease.token
    assert connection_of(locks).session != old
    again.release()
    assert len(hub_of(locks)) == 0


def test_release_after_the_session_ended_raises_lock_lost(
    connect: Connect, zookeeper_server: ZooKeeperServer, proxy: ZooKeeperProxy, proxied: str
) -> None:
    locks = connect(proxied)
    lease = locks.lock("a", renew=False).acquire()
    proxy.refuse()
    proxy.cut_all()
    end_session(zookeeper_server, locks)
    releasing = Call(lease.release)
    proxy.accept()
    with pytest.raises(holdfast.LockLost, match="session"):
        releasing.result()


def test_lease_expires_before_its_session_while_the_connection_is_lost(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient
) -> None:
    locks, others = connect(proxied, ttl=LASTING), connect()
    lease = locks.lock("a").acquire()
    session = connection_of(locks, LASTING).session
    proxy.refuse()
    proxy.cut_all()
    assert lease.lost.wait(LASTING)
    assert lease.lost_reason == "unreachable"
    assert len(nodes(plain, "a")) == 1, "the lease ends before the session does"
    proxy.accept()
    # The session and its node may survive if the connection is restored in time: the node must not block others.
    next_lease = others.lock("a").acquire(timeout=SOON)
    assert next_lease.token > lease.token
    with pytest.raises(holdfast.LockLost, match="unreachable"):
        lease.release()
    next_lease.release()
    assert session is not None


def test_node_of_an_expired_lease_is_removed_although_its_session_lives_on(
    connect: Connect, plain: KazooClient
) -> None:
    locks = connect()
    kept = locks.lock("kept").acquire()
    lost = locks.lock("a", ttl=2.0, renew=False).acquire()
    held = locks.lock("b", max_hold=0.2).acquire()
    assert lost.lost.wait(SOON)
    assert held.lost.wait(SOON)
    eventually(lambda: nodes(plain, "a") == nodes(plain, "b") == [])
    assert (lost.lost_reason, held.lost_reason) == ("expired", "max_hold")
    for lease in (lost, held):
        with pytest.raises(holdfast.LockLost):
            lease.release()
    kept.release()
    eventually(lambda: len(hub_of(locks)) == 0)  # the watchdog forgets a place after its node was removed


def test_release_while_the_connection_is_lost_raises_outcome_unknown(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient
) -> None:
    locks = connect(proxied, ttl=3.0)
    lease = locks.lock("a").acquire()
    proxy.refuse()
    proxy.cut_all()
    with pytest.raises(holdfast.OutcomeUnknown):
        lease.release()
    proxy.accept()
    eventually(lambda: nodes(plain, "a") == [])


def test_release_waits_until_the_connection_is_restored(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient
) -> None:
    locks = connect(proxied)
    lease = locks.lock("a").acquire()
    proxy.refuse()
    proxy.cut_all()
    releasing = Call(lease.release)
    proxy.accept()
    releasing.result()
    assert nodes(plain, "a") == []


def test_lock_whose_node_was_deleted_is_reported_as_broken(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    watched, unwatched = locks.lock("a").acquire(), locks.lock("b", renew=False).acquire()
    eventually(lambda: all(place.watched for place in hub_of(locks)._places.values() if place.name == "a"))
    for name in "ab":
        plain.delete(f"{BASE}/{name}/{nodes(plain, name)[0]}")
    assert watched.lost.wait(3.0), "by a watch, not by the next renewal"
    assert watched.lost_reason == "broken"
    with pytest.raises(holdfast.LockLost, match="broken"):
        unwatched.release()


@pytest.mark.parametrize("busy", [False, True])
def test_node_deleted_soon_after_the_grant_is_reported_before_the_first_renewal(
    connect: Connect, plain: KazooClient, busy: bool
) -> None:
    """The first renewal comes 7 s later at this ttl. Also when the session's thread is busy all the time."""
    locks = connect()
    lease = locks.lock("a").acquire()
    plain.delete(f"{BASE}/a/{nodes(plain, 'a')[0]}")
    began = time.monotonic()
    if busy:
        while not lease.lost and time.monotonic() - began < SOON:
            locks.lock("b").acquire().release()
    assert lease.lost.wait(SOON / 2)
    assert time.monotonic() - began < SOON
    assert lease.lost_reason == "broken"
    with pytest.raises(holdfast.LockLost, match="broken"):
        lease.release()


def test_lock_held_for_less_than_a_moment_sets_no_watch(connect: Connect, proxy: ZooKeeperProxy, proxied: str) -> None:
    locks = connect(proxied)
    slow = 0  # during a scheduler stall; its watch may arrive while the next lease is held
    for _ in range(20):
        began = time.monotonic()
        locks.lock("a").acquire().release()
        slow += time.monotonic() - began >= MOMENT
        assert proxy.operations().count(Op.GET_DATA) <= slow
    with locks.lock("a") as lease:
        eventually(lambda: Op.GET_DATA in proxy.operations())
        assert lease.held
    assert not hub_of(locks)._fresh


def test_data_written_into_the_holders_node_does_not_lose_the_lock(connect: Connect, plain: KazooClient) -> None:
    """Curator's Revoker writes into the node, which triggers the watch too."""
    locks = connect()
    lease = locks.lock("a").acquire()
    path = f"{BASE}/a/{nodes(plain, 'a')[0]}"
    eventually(lambda: all(place.watched for place in hub_of(locks)._places.values()))
    for _ in range(2):
        plain.set(path, b"__REVOKE__")
        assert not lease.lost.wait(0.3)
    assert locks.inspect("a").holders[0].owner == path.rpartition("/")[2]
    plain.delete(path)
    assert lease.lost.wait(3.0), "by a watch, not by the next renewal"


def test_holder_frozen_longer_than_its_session_reports_the_loss_immediately(
    zookeeper_server: ZooKeeperServer, connect: Connect
) -> None:
    with Child(zookeeper_server.url, ttl=0.6) as child:
        child.do("keep.update(a=locks.lock('a').acquire()) or keep['a'].token")
        child.freeze()
        lease = connect().lock("a").acquire(timeout=SOON)
        child.wake()
        assert child.do("keep['a'].held") is False
        assert lease.held
        lease.release()


def test_waiter_of_a_killed_holder_is_granted_within_the_session_timeout(
    zookeeper_server: ZooKeeperServer, connect: Connect
) -> None:
    with Child(zookeeper_server.url, ttl=2.0) as child:
        child.do("keep.update(a=locks.lock('a').acquire())")
        waiting = Call(connect().lock("a").acquire)
        eventually(lambda: connect().inspect("a").waiters == 1)
        child.kill()
        began = time.monotonic()
        waiting.result().release()
        assert time.monotonic() - began < 2.0 + 1.0


# ---- while waiting


def test_waiter_whose_session_ends_goes_to_the_end_of_the_queue(
    connect: Connect, zookeeper_server: ZooKeeperServer, plain: KazooClient
) -> None:
    locks, others, holders = connect(), connect(), connect()
    held = holders.lock("a").acquire()
    waiting = Call(locks.lock("a").acquire)
    eventually(lambda: len(nodes(plain, "a")) == 2)
    behind = Call(others.lock("a").acquire)
    eventually(lambda: len(nodes(plain, "a")) == 3)
    old = connection_of(locks).session
    end_session(zookeeper_server, locks)
    eventually(lambda: connection_of(locks).session not in (None, old) and len(nodes(plain, "a")) == 3)
    last = plain.exists(f"{BASE}/a/{nodes(plain, 'a')[-1]}")
    assert last.ephemeralOwner == connection_of(locks).session
    held.release()
    behind.result().release()
    lease = waiting.result()
    assert lease.token == last.czxid
    lease.release()


def test_new_session_is_not_granted_by_a_node_of_the_old_one_that_a_server_still_lists(
    connect: Connect, zookeeper_server: ZooKeeperServer, plain: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = connect()
    held = connect().lock("a").acquire()
    look, old = LockQueue.look, list[Place]()

    async def lagging(queue: LockQueue, place: Place, timeout: float, also: Also | None = None) -> Sequence[str]:
        """Answer like a server that does not know yet that the session has ended."""
        await look(queue, place, timeout, also)
        if not old:
            old.append(place)
            end_session(zookeeper_server, locks)
            eventually(lambda: connection_of(locks).session not in (None, place.session))
        return [place.node]

    monkeypatch.setattr(LockQueue, "look", lagging)
    waiting = Call(locks.lock("a").acquire)
    eventually(lambda: len(nodes(plain, "a")) == 2 and is_waiting(locks))
    held.release()
    lease = waiting.result(2 * SOON)
    assert lease.token > old[0].token
    assert plain.exists(f"{BASE}/a/{nodes(plain, 'a')[0]}").ephemeralOwner == connection_of(locks).session
    lease.release()


def test_a_new_session_does_not_take_the_old_ones_node_for_its_own(
    connect: Connect, zookeeper_server: ZooKeeperServer, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient
) -> None:
    """The reply to the create is lost, and the session ends before the client searches for its node. Another client has
    created a node of that name meanwhile, which remains."""
    locks = connect(proxied, unavailable_after=2 * SOON)
    locks.lock("a").acquire().release()
    lost = proxy.on(Op.CREATE2).black_hole()
    waiting = Call(lambda: locks.lock("a").acquire(timeout=2 * SOON))
    assert lost.wait(SOON)
    (node,) = nodes(plain, "a")
    end_session(zookeeper_server, locks)
    plain.create(f"{BASE}/a/{node}", b"left over", ephemeral=True)
    lease = waiting.result(2 * SOON)
    assert len(nodes(plain, "a")) == 1
    assert plain.exists(f"{BASE}/a/{nodes(plain, 'a')[0]}").ephemeralOwner == connection_of(locks).session
    assert nodes(plain, "a") != [node]
    lease.release()
