"""An operator removes nodes by hand, or the servers end a session: holders are told, waiters line up again."""

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

#: So long that no renewal comes by chance.
TTL = 30.0
#: A session that is soon over, but not because the machine stands still for a while.
SHORT = 1.6
TOLD_WITHIN = 3.0


@APIS
@pytest.mark.parametrize("what", ["its own node", "the whole lock"])
async def test_a_holder_whose_node_is_removed_is_told_at_once(
    api: Api, what: str, zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    line, told = QueueNodes(zookeeper, "job"), LossReports()
    async with open_clients(api) as ours:
        locks = ours.connect(zookeeper_server.url, ttl=TTL)
        lease = await ours.acquire(locks, "job", on_lost=told)
        await ours.do(lease.renew)  # which sets the watch
        removed = clock.now()
        if what == "its own node":
            line.delete(*line.nodes())
        else:
            line.delete_all()
        await until(lambda: told.at, TOLD_WITHIN)
        assert told.at[0] - removed < TOLD_WITHIN
        assert told.reasons == ["broken"]
        assert not lease.held
        with pytest.raises(holdfast.LockLost, match="broken"):
            await ours.do(lease.release)
        again = await ours.acquire(locks, "job")
        assert again.token > lease.token
        assert line.tokens() == [again.token]


@APIS
async def test_a_holder_whose_node_is_removed_before_the_first_renewal_is_told_by_that(
    api: Api, zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    line, told = QueueNodes(zookeeper, "job"), LossReports()
    async with open_clients(api) as ours:
        lease = await ours.acquire(ours.connect(zookeeper_server.url, ttl=LASTING), "job", on_lost=told)
        line.delete(*line.nodes())
        await until(lambda: told.at, lease.ttl / 3 + TOLD_WITHIN)
        assert told.reasons == ["broken"]


@APIS
async def test_the_lock_removed_under_holder_and_waiters(
    api: Api, zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    line, told = QueueNodes(zookeeper, "job"), LossReports()
    async with open_clients(api) as ours:
        locks = ours.connect(zookeeper_server.url, ttl=TTL)
        holder = await ours.acquire(locks, "job", on_lost=told)
        await ours.do(holder.renew)
        waiting = []
        for place in range(2):
            waiting.append(ours.caller().do(lambda: locks.lock("job").acquire(timeout=20)))
            await until(lambda: len(line.nodes()) == 2 + place)  # noqa: B023
        before = line.tokens()
        line.delete_all()
        await until(lambda: told.at, TOLD_WITHIN)
        assert told.reasons == ["broken"]
        for place in range(2):
            await until(lambda: any(each.done() for each in waiting), TOLD_WITHIN)
            (done,) = (each for each in waiting if each.done())
            waiting.remove(done)
            lease = await done
            assert lease.token > max(before)
            await until(lambda: len(line.nodes()) == 2 - place)  # noqa: B023
            assert line.tokens()[0] == lease.token
            await ours.do(lease.release)


@APIS
async def test_a_waiter_whose_session_was_ended_goes_to_the_back_of_the_line(
    api: Api, proxy: ZooKeeperProxy, proxied: str, zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    line = QueueNodes(zookeeper, "job")
    async with open_clients(api) as ours:
        locks = ours.connect(proxied, ttl=SHORT, unavailable_after=20.0)
        others = ours.connect(zookeeper_server.url)
        holder = await ours.acquire(others, "job")
        waiting = ours.caller().do(lambda: locks.lock("job").acquire(timeout=20))
        await until(lambda: len(line.nodes()) == 2)
        _, expired = line.tokens()
        behind = ours.caller().do(lambda: others.lock("job").acquire(timeout=20))
        await until(lambda: len(line.nodes()) == 3)
        proxy.refuse()
        proxy.cut_all()
        await until(lambda: expired not in line.tokens())
        proxy.accept()
        await until(lambda: len(line.nodes()) == 3)
        _, second, third = line.tokens()
        await ours.do(holder.release)
        lease = await behind
        assert lease.token == second
        assert not waiting.done()
        await ours.do(lease.release)
        lease = await waiting  # the same call as before
        assert lease.token == third
        await ours.do(lease.release)


@APIS
async def test_a_holder_whose_session_was_ended_is_told_that(
    api: Api, proxy: ZooKeeperProxy, proxied: str, zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    """Long before its time, as only somebody with its password can."""
    told, line = LossReports(), QueueNodes(zookeeper, "job")
    async with open_clients(api) as ours:
        locks = ours.connect(proxied, ttl=TTL)
        lease = await ours.acquire(locks, "job", on_lost=told)
        proxy.cut_all()
        await until(lambda: len(connects(proxy)) == 2)
        *_, session, _, password = _CONNECT.unpack_from(connects(proxy)[-1])
        proxy.refuse()
        zookeeper_server.client(client_id=(session, password)).stop()
        assert line.nodes() == []
        proxy.accept()
        await until(lambda: told.at, 2 * TOLD_WITHIN)  # connecting again is half of it
        assert told.reasons == ["session"]
        assert not lease.held
        again = await ours.acquire(locks, "job")
        assert again.token > lease.token
        assert line.tokens() == [again.token]


#: What a client says when it comes back: version, last transaction seen, time-out, session, password.
_CONNECT = struct.Struct(">iqiqi16s")


def connects(proxy: ZooKeeperProxy) -> list[bytes]:
    return [body for name, body in proxy.seen if name == Op.CONNECT.name.encode()]
