"""An operator removes nodes, or the servers end a session: holders are notified, waiters join the queue again."""

from __future__ import annotations

import struct

import pytest
from kazoo.client import KazooClient

import holdfast
from holdfast._runtime import clock
from holdfast.testing.conformance.opening import Api
from tests.servers.zookeeper import ZooKeeperServer
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.servers.zookeeper_wire import Op
from tests.support.clients import APIS, LossReports, open_clients
from tests.support.waiting import until
from tests.zookeeper.queue_nodes import QueueNodes
from tests.zookeeper.support import LASTING

#: So long that no renewal happens during a test.
TTL = 30.0
#: A short session that still survives a scheduler stall.
SHORT = 1.6
NOTIFIED_WITHIN = 3.0


@APIS
@pytest.mark.parametrize("what", ["its own node", "the whole lock"])
async def test_holder_whose_node_is_removed_is_notified_immediately(
    api: Api, what: str, zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    queue, reports = QueueNodes(zookeeper, "job"), LossReports()
    async with open_clients(api) as ours:
        locks = ours.connect(zookeeper_server.url, ttl=TTL)
        lease = await ours.acquire(locks, "job", on_lost=reports)
        await ours.do(lease.renew)  # sets the watch
        removed = clock.now()
        if what == "its own node":
            queue.delete(*queue.nodes())
        else:
            queue.delete_all()
        await until(lambda: reports.at, NOTIFIED_WITHIN)
        assert reports.at[0] - removed < NOTIFIED_WITHIN
        assert reports.reasons == ["broken"]
        assert not lease.held
        with pytest.raises(holdfast.LockLost, match="broken"):
            await ours.do(lease.release)
        again = await ours.acquire(locks, "job")
        assert again.token > lease.token
        assert queue.tokens() == [again.token]


@APIS
async def test_holder_whose_node_is_removed_before_the_first_renewal_is_notified(
    api: Api, zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    queue, reports = QueueNodes(zookeeper, "job"), LossReports()
    async with open_clients(api) as ours:
        lease = await ours.acquire(ours.connect(zookeeper_server.url, ttl=LASTING), "job", on_lost=reports)
        queue.delete(*queue.nodes())
        await until(lambda: reports.at, lease.ttl / 3 + NOTIFIED_WITHIN)
        assert reports.reasons == ["broken"]


@APIS
async def test_lock_removed_with_its_queue_is_lost_by_its_holder_and_granted_to_its_waiters(
    api: Api, zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    queue, reports = QueueNodes(zookeeper, "job"), LossReports()
    async with open_clients(api) as ours:
        locks = ours.connect(zookeeper_server.url, ttl=TTL)
        holder = await ours.acquire(locks, "job", on_lost=reports)
        await ours.do(holder.renew)
        waiting = []
        for place in range(2):
            waiting.append(ours.caller().do(lambda: locks.lock("job").acquire(timeout=20)))
            await until(lambda: len(queue.nodes()) == 2 + place)  # noqa: B023
        before = queue.tokens()
        queue.delete_all()
        await until(lambda: reports.at, NOTIFIED_WITHIN)
        assert reports.reasons == ["broken"]
        for place in range(2):
            await until(lambda: any(each.done() for each in waiting), NOTIFIED_WITHIN)
            (done,) = (each for each in waiting if each.done())
            waiting.remove(done)
            lease = await done
            assert lease.token > max(before)
            await until(lambda: len(queue.nodes()) == 2 - place)  # noqa: B023
            assert queue.tokens()[0] == lease.token
            await ours.do(lease.release)


@APIS
async def test_waiter_whose_session_was_ended_goes_to_the_end_of_the_queue(
    api: Api, proxy: ZooKeeperProxy, proxied: str, zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    queue = QueueNodes(zookeeper, "job")
    async with open_clients(api) as ours:
        locks = ours.connect(proxied, ttl=SHORT, unavailable_after=20.0)
        others = ours.connect(zookeeper_server.url)
        holder = await ours.acquire(others, "job")
        waiting = ours.caller().do(lambda: locks.lock("job").acquire(timeout=20))
        await until(lambda: len(queue.nodes()) == 2)
        _, expired = queue.tokens()
        behind = ours.caller().do(lambda: others.lock("job").acquire(timeout=20))
        await until(lambda: len(queue.nodes()) == 3)
        proxy.refuse()
        proxy.cut_all()
        await until(lambda: expired not in queue.tokens())
        proxy.accept()
        await until(lambda: len(queue.nodes()) == 3)
        _, second, third = queue.tokens()
        await ours.do(holder.release)
        lease = await behind
        assert lease.token == second
        assert not waiting.done()
        await ours.do(lease.release)
        lease = await waiting  # the same call as before
        assert lease.token == third
        await ours.do(lease.release)


@APIS
async def test_holder_whose_session_was_ended_reports_the_reason(
    api: Api, proxy: ZooKeeperProxy, proxied: str, zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    """The session is ended early by a client that has its password."""
    reports, queue = LossReports(), QueueNodes(zookeeper, "job")
    async with open_clients(api) as ours:
        locks = ours.connect(proxied, ttl=TTL)
        lease = await ours.acquire(locks, "job", on_lost=reports)
        proxy.cut_all()
        await until(lambda: len(connects(proxy)) == 2)
        *_, session, _, password = _CONNECT.unpack_from(connects(proxy)[-1])
        proxy.refuse()
        zookeeper_server.client(client_id=(session, password)).stop()
        assert queue.nodes() == []
        proxy.accept()
        await until(lambda: reports.at, 2 * NOTIFIED_WITHIN)  # half of it for reconnecting
        assert reports.reasons == ["session"]
        assert not lease.held
        again = await ours.acquire(locks, "job")
        assert again.token > lease.token
        assert queue.tokens() == [again.token]


#: The connect request of a returning client: version, last transaction seen, timeout, session, password.
_CONNECT = struct.Struct(">iqiqi16s")


def connects(proxy: ZooKeeperProxy) -> list[bytes]:
    return [body for name, body in proxy.seen if name == Op.CONNECT.name.encode()]
