"""Requests and replies that get lost, one by one: nothing is done twice, and nothing stays behind."""

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
from tests.zookeeper.support import LASTING, PATIENT, SOON, connection_of, hub_of, nodes, until_renewed


def nothing_is_kept(locks: holdfast.Client | holdfast.aio.AsyncClient) -> bool:
    return len(hub_of(locks)) == 0 and len(hub_of(locks).leftovers) == 0


@pytest.mark.parametrize("op", [Op.CREATE2, Op.GET_CHILDREN])
def test_an_acquire_whose_reply_is_lost_is_found_again(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient, op: Op
) -> None:
    locks = connect(proxied, request_timeout=PATIENT)
    locks.ping()
    with locks.lock("a"):
        pass  # the path is there
    lost = proxy.on(op).drop_reply_and_reset()
    lease = locks.lock("a").acquire(timeout=SOON)
    assert lost.fired
    (node,) = nodes(plain, "a")
    assert plain.exists(f"/holdfast/a/{node}").czxid == lease.token
    assert proxy.operations().count(Op.CREATE2) == 3, "one before the path was there, one then, and no third"
    lease.release()
    assert nodes(plain, "a") == []
    assert nothing_is_kept(locks)


@pytest.mark.parametrize("op", [Op.CREATE2, Op.GET_CHILDREN])
def test_a_try_whose_reply_is_lost_leaves_no_node_on_a_busy_lock(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient, op: Op
) -> None:
    locks = connect(proxied, request_timeout=PATIENT)
    locks.ping()
    held = connect().lock("a").acquire()
    lost = proxy.on(op).drop_reply_and_reset()
    assert locks.lock("a").try_acquire() is None
    assert lost.fired
    eventually(lambda: len(nodes(plain, "a")) == 1)
    held.release()
    eventually(lambda: nothing_is_kept(locks))


def test_a_try_whose_removal_is_lost_is_busy_and_its_node_goes_later(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient
) -> None:
    locks = connect(proxied, request_timeout=PATIENT)
    locks.ping()
    held = connect().lock("a").acquire()
    lost = proxy.on(Op.DELETE).drop_request_and_reset()
    assert locks.lock("a").try_acquire() is None
    assert lost.fired
    eventually(lambda: len(nodes(plain, "a")) == 1)
    held.release()
    eventually(lambda: nothing_is_kept(locks))


def test_a_release_whose_reply_is_lost_has_happened_once(
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


def test_a_release_that_is_lost_on_its_way_is_sent_again(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient
) -> None:
    locks = connect(proxied)
    lease = locks.lock("a").acquire()
    lost = proxy.on(Op.DELETE).drop_request_and_reset()
    lease.release()
    assert lost.fired
    assert nodes(plain, "a") == []


@pytest.mark.parametrize("op", [Op.GET_DATA, Op.SYNC, Op.EVENT])
def test_a_waiter_that_misses_a_reply_or_the_wake_up_gets_its_turn(
    connect: Connect,
    proxy: ZooKeeperProxy,
    proxied: str,
    plain: KazooClient,
    monkeypatch: pytest.MonkeyPatch,
    op: Op,
) -> None:
    monkeypatch.setattr(
        place, "_CONFIRMATION_LASTS", 0.0
    )  # as after a long wait: the leader is asked before each grant
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
    assert time.monotonic() - began < 3.0, "by its reconnection, not by looking again after a while"
    assert len(nodes(plain, "a")) == 1
    lease.release()


def test_a_renewal_whose_reply_is_lost_costs_nothing(connect: Connect, proxy: ZooKeeperProxy, proxied: str) -> None:
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
    lost = proxy.on(Op.GET_DATA).drop_reply_and_reset()  # when it has a place, and arranges to be told
    with pytest.raises((holdfast.AcquireTimeout, holdfast.EngineUnavailable)):
        locks.lock("a").acquire(timeout=1.0)
    assert lost.fired
    assert len(nodes(plain, "a")) == 2
    proxy.accept()
    eventually(lambda: len(nodes(plain, "a")) == 1)
    held.release()
    eventually(lambda: nothing_is_kept(locks))


def test_what_could_not_be_withdrawn_in_a_ttl_is_withdrawn_later(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient
) -> None:
    """The core gives up after a ttl, when others forget by themselves. A session that comes back still has its node."""
    locks = connect(proxied, request_timeout=0.5, unavailable_after=1.5)
    locks.ping()
    lock = locks.lock("a", ttl=8.0)
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
    eventually(lambda: nodes(plain, "a") == [], within=3.0)  # and not when the session is over
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
    async with holdfast.aio.connect(proxied, request_timeout=PATIENT) as locks:
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


def test_unreachable_servers_are_told_from_a_busy_lock(connect: Connect, proxy: ZooKeeperProxy, proxied: str) -> None:
    proxy.refuse()
    locks = connect(proxied, unavailable_after=0.3)
    with pytest.raises(holdfast.EngineUnavailable, match="refused"):
        locks.lock("a").acquire()
    with pytest.raises(holdfast.EngineUnavailable):
        locks.ping()
    proxy.accept()
    eventually(lambda: connection_of(locks).connected)
    locks.lock("a").acquire(timeout=SOON).release()


def test_an_error_that_the_driver_does_not_know_costs_one_request_and_not_the_session(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """kazoo's thread would end: a newer server may have newer errors."""
    locks = connect(request_timeout=PATIENT, unavailable_after=0.1)
    lease = locks.lock("a").acquire()
    session = connection_of(locks).session
    monkeypatch.delitem(EXCEPTIONS, NoNodeError.code)
    with pytest.raises(holdfast.EngineUnavailable, match="SystemZookeeperError"):
        locks.inspect("nobody's")
    assert f"error {NoNodeError.code}" in caplog.text
    assert lease.held
    assert connection_of(locks).session == session
    lease.release()


def test_who_is_struck_before_its_watch_is_set_leaves_nobody_to_rely_on_it(
    connect: Connect, plain: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C when the watch is noted but not asked for: the next who waits has to ask for it."""
    locks = connect()
    locks.ping()
    held = connect().lock("a").acquire()

    def struck(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(connection_of(locks), "watch", struck)
        with pytest.raises(KeyboardInterrupt):
            locks.lock("a").acquire()
    waiting = Call(locks.lock("a").acquire)
    eventually(lambda: sum(map(len, connection_of(locks).watches._callbacks.values())) == 1)
    eventually(lambda: connection_of(locks)._client._data_watchers)
    began = time.monotonic()
    held.release()
    waiting.result().release()
    assert time.monotonic() - began < 3.0, "told by the watch"


def test_names_that_nobody_knows_are_told_as_such(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(holdfast.EngineUnavailable, match="no host could be resolved"):
        connect("zookeeper://nobody/locks", unavailable_after=0.1).ping()
