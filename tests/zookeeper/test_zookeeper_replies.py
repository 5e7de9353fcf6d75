"""Single requests and replies are lost: no operation is executed twice, and no node is left behind."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, NoNodeError

import holdfast
from holdfast._runtime import clock
from holdfast.engines.zookeeper import place
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.servers.zookeeper_wire import Op
from tests.support.calls import Call
from tests.support.waiting import eventually
from tests.zookeeper.conftest import Connect
from tests.zookeeper.support import LASTING, LONG_TIMEOUT, SOON, connection_of, hub_of, nodes, until_renewed


def nothing_is_kept(locks: holdfast.Client | holdfast.aio.AsyncClient) -> bool:
    return len(hub_of(locks)) == 0 and len(hub_of(locks).leftovers) == 0


@pytest.mark.parametrize("op", [Op.CREATE2, Op.GET_CHILDREN])
def test_acquire_whose_reply_is_lost_finds_its_node(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient, op: Op
) -> None:
    locks = connect(proxied, request_timeout=LONG_TIMEOUT)
    locks.ping()
    with locks.lock("a"):
        pass  # creates the parent nodes
    lost = proxy.on(op).drop_reply_and_reset()
    lease = locks.lock("a").acquire(timeout=SOON)
    assert lost.fired
    (node,) = nodes(plain, "a")
    assert plain.exists(f"/holdfast/a/{node}").czxid == lease.token
    assert proxy.operations().count(Op.CREATE2) == 3, "one without the parents, one with them, one for this lease"
    lease.release()
    assert nodes(plain, "a") == []
    assert nothing_is_kept(locks)


@pytest.mark.parametrize("op", [Op.CREATE2, Op.GET_CHILDREN])
def test_try_acquire_whose_reply_is_lost_leaves_no_node_on_a_busy_lock(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient, op: Op
) -> None:
    locks = connect(proxied, request_timeout=LONG_TIMEOUT)
    locks.ping()
    held = connect().lock("a").acquire()
    lost = proxy.on(op).drop_reply_and_reset()
    assert locks.lock("a").try_acquire() is None
    assert lost.fired
    eventually(lambda: len(nodes(plain, "a")) == 1)
    held.release()
    eventually(lambda: nothing_is_kept(locks))


def test_try_acquire_whose_removal_is_lost_reports_busy_and_removes_its_node_later(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient
) -> None:
    locks = connect(proxied, request_timeout=LONG_TIMEOUT)
    locks.ping()
    held = connect().lock("a").acquire()
    lost = proxy.on(Op.DELETE).drop_request_and_reset()
    assert locks.lock("a").try_acquire() is None
    assert lost.fired
    eventually(lambda: len(nodes(plain, "a")) == 1)
    held.release()
    eventually(lambda: nothing_is_kept(locks))


def test_release_whose_reply_is_lost_is_executed_once(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient
) -> None:
    locks, others = connect(proxied), connect()
    lease = locks.lock("a").acquire()
    lost = proxy.on(Op.DELETE).drop_reply_and_reset()
    waiting = Call(others.lock("a").acquire)
    eventually(lambda: len(nodes(plain, "a")) == 2)
    lease.release()
    assert lost.fired
    next_lease = waiting.result()
    assert next_lease.held
    assert len(nodes(plain, "a")) == 1
    next_lease.release()
    assert nothing_is_kept(locks)


def test_release_whose_request_is_lost_is_sent_again(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient
) -> None:
    locks = connect(proxied)
    lease = locks.lock("a").acquire()
    lost = proxy.on(Op.DELETE).drop_request_and_reset()
    lease.release()
    assert lost.fired
    assert nodes(plain, "a") == []


@pytest.mark.parametrize("op", [Op.GET_DATA, Op.SYNC, Op.EVENT])
def test_waiter_that_misses_a_reply_or_an_event_is_granted_the_lock(
    connect: Connect,
    proxy: ZooKeeperProxy,
    proxied: str,
    plain: KazooClient,
    monkeypatch: pytest.MonkeyPatch,
    op: Op,
) -> None:
    # As after a long wait: the leader is asked before each grant.
    monkeypatch.setattr(place, "_CONFIRMATION_LASTS", 0.0)
    locks = connect(proxied)
    locks.ping()
    held = connect().lock("a").acquire()
    lost = proxy.on(op).drop_reply_and_reset()
    waiting = Call(locks.lock("a").acquire)
    eventually(lambda: len(nodes(plain, "a")) == 2 and Op.GET_DATA in proxy.operations())
    began = time.monotonic()
    held.release()
    lease = waiting.result()
    assert lost.fired
    assert time.monotonic() - began < 3.0, "by its reconnection, not by a later poll"
    assert len(nodes(plain, "a")) == 1
    lease.release()


def test_renewal_whose_reply_is_lost_is_repeated_in_the_same_session(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str
) -> None:
    locks = connect(proxied, ttl=LASTING)
    lease = locks.lock("a").acquire()
    session = connection_of(locks, LASTING).session
    lost = proxy.on(Op.SYNC, times=2).drop_reply_and_reset()
    eventually(lambda: len(lost.hits) == 2)
    until_renewed(lease, since=clock.now())
    assert connection_of(locks, LASTING).session == session
    lease.release()


def test_a_wait_that_times_out_while_the_connection_is_lost_leaves_no_node(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient
) -> None:
    locks = connect(proxied)
    locks.ping()
    held = connect().lock("a").acquire()
    proxy.refuse()
    lost = proxy.on(Op.GET_DATA).drop_reply_and_reset()  # when it is in the queue and sets its watch
    with pytest.raises((holdfast.AcquireTimeout, holdfast.EngineUnavailable)):
        locks.lock("a").acquire(timeout=1.0)
    assert lost.fired
    assert len(nodes(plain, "a")) == 2
    proxy.accept()
    eventually(lambda: len(nodes(plain, "a")) == 1)
    held.release()
    eventually(lambda: nothing_is_kept(locks))


def test_attempt_that_could_not_be_withdrawn_within_its_ttl_is_withdrawn_later(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient
) -> None:
    """The core gives up after a ttl, when other engines have expired the claim; a resumed session has its node."""
    locks = connect(proxied, request_timeout=0.5, unavailable_after=1.5)
    locks.ping()
    lock = locks.lock("a", ttl=20.0)
    lock.acquire().release()
    silent = proxy.on(Op.CREATE2).black_hole()
    acquiring = Call(lock.acquire)
    assert silent.wait(SOON)
    proxy.refuse()
    with pytest.raises(holdfast.OutcomeUnknown):
        acquiring.result()
    assert len(nodes(plain, "a")) == 1
    locks._opened.watchdog._withdrawals.clear()  # type: ignore[union-attr]
    proxy.accept()
    proxy.cut_all()
    eventually(lambda: nodes(plain, "a") == [], within=15.0)  # before the session ends
    eventually(lambda: nothing_is_kept(locks))


async def test_a_task_that_is_cancelled_between_a_create_and_its_reply_leaves_no_node(
    proxy: ZooKeeperProxy, proxied: str, plain: KazooClient
) -> None:
    async with holdfast.aio.connect(proxied) as locks:
        await locks.ping()
        held_back = proxy.on(Op.CREATE2).delay()
        task = asyncio.create_task(locks.lock("a").acquire())
        await asyncio.to_thread(held_back.wait, SOON)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        held_back.release()
        await asyncio.to_thread(eventually, lambda: nodes(plain, "a") == [] and nothing_is_kept(locks))


async def test_a_task_that_is_cancelled_while_it_gives_up_its_place_leaves_no_node(
    proxy: ZooKeeperProxy, proxied: str, connect: Connect, plain: KazooClient
) -> None:
    held = connect().lock("a").acquire()
    async with holdfast.aio.connect(proxied, request_timeout=LONG_TIMEOUT) as locks:
        await locks.ping()
        lost = proxy.on(Op.DELETE).drop_request_black_hole()
        task = asyncio.create_task(locks.lock("a").acquire(timeout=0.5))
        assert await asyncio.to_thread(lost.wait, SOON)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(nodes(plain, "a")) == 2
        proxy.cut_all()
        await asyncio.to_thread(eventually, lambda: len(nodes(plain, "a")) == 1 and nothing_is_kept(locks))
    held.release()


def test_unreachable_servers_are_distinguished_from_a_busy_lock(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str
) -> None:
    proxy.refuse()
    locks = connect(proxied, unavailable_after=0.3)
    with pytest.raises(holdfast.EngineUnavailable, match="refused"):
        locks.lock("a").acquire()
    with pytest.raises(holdfast.EngineUnavailable):
        locks.ping()
    proxy.accept()
    eventually(lambda: connection_of(locks).connected)
    locks.lock("a").acquire(timeout=SOON).release()


def test_error_code_unknown_to_the_driver_fails_one_request_and_keeps_the_session(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A newer server may send newer errors, which would end kazoo's thread."""
    locks = connect(request_timeout=LONG_TIMEOUT, unavailable_after=0.1)
    lease = locks.lock("a").acquire()
    session = connection_of(locks).session
    monkeypatch.delitem(EXCEPTIONS, NoNodeError.code)
    with pytest.raises(holdfast.EngineUnavailable, match="SystemZookeeperError"):
        locks.inspect("missing")
    assert f"error {NoNodeError.code}" in caplog.text
    assert lease.held
    assert connection_of(locks).session == session
    lease.release()


def test_interrupt_before_a_watch_is_set_makes_the_next_waiter_set_it(
    connect: Connect, plain: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C arrives when the watch is recorded but not requested: the next waiter has to request it."""
    locks = connect()
    locks.ping()
    held = connect().lock("a").acquire()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(connection_of(locks), "watch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            locks.lock("a").acquire()
    waiting = Call(locks.lock("a").acquire)
    eventually(lambda: sum(map(len, connection_of(locks).watches._callbacks.values())) == 1)
    eventually(lambda: connection_of(locks)._client._data_watchers)
    began = time.monotonic()
    held.release()
    waiting.result().release()
    assert time.monotonic() - began < 3.0, "notified by the watch"


def test_unresolvable_host_names_are_reported_as_such(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(holdfast.EngineUnavailable, match="no host could be resolved"):
        connect("zookeeper://unknown/locks", unavailable_after=0.1).ping()
