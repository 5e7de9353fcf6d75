"""The cost and effect of renewals: one request for each session, answered by the leader."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
from kazoo.client import KazooClient

import holdfast
from holdfast._runtime import blocking, clock
from holdfast.engines.base import Found, RequestFailed
from holdfast.engines.zookeeper import place
from holdfast.engines.zookeeper.heartbeat import Heartbeat
from holdfast.engines.zookeeper.requests import Requester
from tests.servers.zookeeper import ZooKeeperServer
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.servers.zookeeper_wire import Op
from tests.support.calls import Call
from tests.support.child import Child
from tests.support.waiting import eventually
from tests.zookeeper.conftest import Connect
from tests.zookeeper.support import LASTING, LONG_TIMEOUT, SOON, connection_of, hub_of, is_waiting, nodes, until_renewed


def test_renewal_round_costs_one_request_for_any_number_of_locks(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str
) -> None:
    locks = connect(proxied, ttl=LASTING)
    leases = [locks.lock(str(number)).acquire() for number in range(200)]
    eventually(lambda: proxy.operations().count(Op.GET_DATA) == 200)
    start = len(proxy.operations())
    eventually(lambda: proxy.operations()[start:].count(Op.SYNC) >= 2)
    assert set(proxy.operations()[start:]) == {Op.SYNC}
    assert len(proxy.operations()) - start < 40, "not one for each lock"
    assert all(lease.held for lease in leases)
    for lease in leases:
        lease.release()


def test_each_node_is_read_once_after_a_reconnection(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient
) -> None:
    locks = connect(proxied, request_timeout=LONG_TIMEOUT)  # a request answered late would be repeated
    leases = [locks.lock(str(number)).acquire() for number in range(50)]
    eventually(lambda: proxy.operations().count(Op.GET_DATA) == 50)
    start = len(proxy.operations())
    proxy.cut_all()
    eventually(lambda: Counter(proxy.operations()[start:])[Op.GET_DATA] == 50)
    assert not leases[0].lost.wait(1.0)
    asked = Counter(proxy.operations()[start:])
    assert asked[Op.GET_DATA] == 50
    assert asked[Op.SYNC] < 10
    plain.delete(f"/holdfast/7/{nodes(plain, '7')[0]}")
    assert leases[7].lost.wait(SOON)
    assert leases[7].lost_reason == "broken"
    for lease in leases:
        if lease is not leases[7]:
            lease.release()
    with pytest.raises(holdfast.LockLost):
        leases[7].release()


def test_holder_switches_from_a_silent_server_to_another_one(
    connect: Connect, proxy: ZooKeeperProxy, zookeeper_server: ZooKeeperServer
) -> None:
    """It switches long before its lease expires."""
    url = f"zookeeper://{proxy.address},{zookeeper_server.address}/holdfast?tick=0.1&randomize_hosts=false"
    locks = connect(url, ttl=LASTING, request_timeout=0.3)
    lease = locks.lock("a").acquire()
    session = connection_of(locks, LASTING).session
    assert proxy.connections == 1
    proxy.black_hole_all()
    until_renewed(lease, since=clock.now())
    assert connection_of(locks, LASTING).session == session
    assert connection_of(locks, LASTING).connected
    lease.release()
    proxy.heal()


def test_holder_frozen_for_less_than_its_session_keeps_its_lock(zookeeper_server: ZooKeeperServer) -> None:
    """The first renewal after the freeze may not count, since the last request before it is old; the next one does."""
    with Child(zookeeper_server.url, ttl=5.0) as child:  # valid for 3.6 s
        child.do("keep.update(a=locks.lock('a').acquire()) or 0")
        eventually(lambda: child.do("keep['a'].remaining") > 3.3)
        child.freeze()
        frozen = time.monotonic()
        eventually(lambda: time.monotonic() - frozen > 1.6)
        child.wake()
        left = child.do("keep['a'].remaining")
        assert left > 0
        eventually(lambda: not child.do("keep['a'].held") or child.do("keep['a'].remaining") > left + 1.0)
        assert child.do("keep['a'].held") is True
        assert child.do("keep['a'].release()") is None


def test_renewal_that_may_not_have_reached_the_leader_does_not_extend_the_lease(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = connect(ttl=2.0)
    lease = locks.lock("a").acquire()
    # As if every earlier request had been sent long ago.
    monkeypatch.setattr(Heartbeat, "known", lambda self, asked: asked - 1.0)
    assert lease.lost.wait(SOON)
    assert lease.lost_reason == "unreachable"
    monkeypatch.undo()
    with pytest.raises(holdfast.LockLost):
        lease.release()


def test_requests_answered_after_the_renewal_was_sent_do_not_confirm_it(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller sees the answer late, after other threads have exchanged requests with the servers. Only the time
    known when it asked counts: those requests never reach the leader if the follower is cut off after its answer."""
    locks = connect(ttl=8.0)
    lease = locks.lock("a", renew=False).acquire()
    heartbeat, confirm = connection_of(locks, 8.0).heartbeat, Requester.confirm

    async def seen_late(*arguments: Any) -> None:
        await confirm(*arguments)
        heartbeat.begin(clock.now())

    monkeypatch.setattr(Requester, "confirm", seen_late)
    heartbeat.begin(clock.now() - 3.0)
    attempt, session = lease._hold.grant.attempt, locks._opened.session  # type: ignore[union-attr]
    with pytest.raises(RequestFailed):
        blocking.run(session.renew(attempt, 8.0, LONG_TIMEOUT))
    assert blocking.run(session.renew(attempt, 8.0, LONG_TIMEOUT)) is Found.OURS
    lease.release()


@pytest.mark.parametrize("spare, renewed", [(0.0, False), (0.005, False), (0.06, True)])
def test_a_renewal_needs_a_margin_for_clocks_that_differ(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, spare: float, renewed: bool
) -> None:
    """The leader's clock may run faster than the client's: without a margin it could end the session while the lease is
    still valid. The margin is 1 %, as on the other engines."""
    locks = connect(ttl=4.0)
    lease = locks.lock("a", renew=False).acquire()
    slack = hub_of(locks).slack(4.0)
    monkeypatch.setattr(Heartbeat, "known", lambda self, asked: asked - slack + spare)
    session = locks._opened.session  # type: ignore[union-attr]
    with nullcontext() if renewed else pytest.raises(RequestFailed):
        assert blocking.run(session.renew(lease._hold.grant.attempt, 4.0, LONG_TIMEOUT)) is Found.OURS
    monkeypatch.undo()
    lease.release()


@pytest.mark.parametrize("lasts", [True, False])
def test_lease_after_a_wait_counts_from_the_last_confirmation_or_a_new_one_if_that_is_old(
    connect: Connect,
    proxy: ZooKeeperProxy,
    proxied: str,
    plain: KazooClient,
    monkeypatch: pytest.MonkeyPatch,
    lasts: bool,
) -> None:
    """The creation of the node is a confirmation by the leader."""
    monkeypatch.setattr(place, "_CONFIRMATION_LASTS", 1.0 if lasts else 0.0)
    locks = connect(proxied)
    locks.ping()
    held = connect().lock("a").acquire()
    start = len(proxy.operations())
    waiting = Call(locks.lock("a", renew=False).acquire)
    eventually(lambda: len(nodes(plain, "a")) == 2 and is_waiting(locks))
    created = time.monotonic()
    eventually(lambda: time.monotonic() - created > 0.2)
    released = time.monotonic()
    held.release()
    lease = waiting.result()
    granted = time.monotonic()
    spent = hub_of(locks).ttl - hub_of(locks).slack(hub_of(locks).ttl) - lease.remaining
    assert (Op.SYNC in proxy.operations()[start:]) is not lasts
    if lasts:
        assert spent >= granted - created - 0.1
    else:
        assert spent <= time.monotonic() - released + 0.01
    lease.release()


def test_session_shortened_during_the_wait_gives_a_shorter_lease(connect: Connect, plain: KazooClient) -> None:
    """The session moved to another server with other limits."""
    locks = connect(ttl=8.0)
    held = connect().lock("a").acquire()
    waiting = Call(lambda: locks.lock("a", renew=False).acquire())
    eventually(lambda: len(nodes(plain, "a")) == 2)
    connection_of(locks, 8.0).negotiated = 4.0
    held.release()
    lease = waiting.result()
    assert lease.ttl == 4.0
    assert lease.remaining < 4.0
    lease.release()


def test_grant_is_valid_for_less_if_the_last_confirmation_is_old(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = connect(ttl=30.0)
    monkeypatch.setattr(Heartbeat, "known", lambda self, asked: asked - 20.0)
    with locks.lock("a", renew=False) as lease:
        assert lease.remaining < 10.0
    monkeypatch.undo()
    with locks.lock("a", renew=False) as lease:
        assert lease.remaining > 15.0
