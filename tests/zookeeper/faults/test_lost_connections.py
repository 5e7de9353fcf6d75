"""The connection is reset or blackholed at each request, and the session survives (faults N1, N5, Z1, Z2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

import holdfast
from holdfast._runtime import clock
from holdfast.testing.conformance.opening import Api
from holdfast.testing.conformance.world import ends
from holdfast.testing.faults import Occasion, Rule
from tests.servers.zookeeper import ZooKeeperServer
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.servers.zookeeper_wire import Op
from tests.support.clients import APIS, Clients, LossReports, open_clients
from tests.support.waiting import until
from tests.zookeeper.queue_nodes import QueueNodes
from tests.zookeeper.support import LASTING
from tests.zookeeper.validity import end_of_validity, until_renewed

#: A session that survives a blackholed connection followed by a scheduler stall.
TTL = 2.4
#: Additional time for immediate operations, in case of a scheduler stall.
SLACK = 1.5
#: The client tries to connect at least once a second.
CONNECTED_AGAIN_WITHIN = 1.0 + SLACK
#: The timeout of an acquire, long enough never to expire here.
LONG = 20.0

Loss = Callable[[Occasion], Rule]
RAN = [Occasion.drop_reply_and_reset, Occasion.black_hole]
DID_NOT_RUN = [Occasion.drop_request_and_reset, Occasion.drop_request_black_hole]
every_loss = pytest.mark.parametrize("lose", RAN + DID_NOT_RUN)
every_lost_reply = pytest.mark.parametrize("lose", RAN)


async def connect_and_take_once(ours: Clients, url: str, name: str, **options: float) -> holdfast.Client:
    """A client that has held this lock before: the session and the parent nodes exist."""
    locks = ours.connect(url, **{"ttl": TTL, "request_timeout": 0.25, "unavailable_after": LONG, **options})
    lease = await ours.acquire(locks, name, LONG)
    await ours.do(lease.release)
    return locks  # type: ignore[no-any-return]


# ---- create


@APIS
@every_loss
async def test_create_whose_answer_was_lost_is_not_repeated(
    api: Api, lose: Loss, proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient
) -> None:
    queue = QueueNodes(zookeeper, "job")
    async with open_clients(api) as ours:
        locks = await connect_and_take_once(ours, proxied, "job")
        before = queue.ever()
        lost = lose(proxy.on(Op.CREATE2, containing="-lock-"))
        lease = await ours.acquire(locks, "job", LONG)
        assert lost.fired
        assert queue.tokens() == [lease.token], "exactly the node of the lease"
        assert queue.ever() == before + 1, "a second node was created"
        assert lease.held
        await ours.do(lease.release)
        assert queue.nodes() == []


@APIS
@every_lost_reply
async def test_waiter_whose_create_was_not_answered_keeps_its_position(
    api: Api, lose: Loss, proxy: ZooKeeperProxy, proxied: str, zookeeper_server: ZooKeeperServer
) -> None:
    queue = QueueNodes(zookeeper_server.client(), "job")
    async with open_clients(api) as ours:
        locks = await connect_and_take_once(ours, proxied, "job")
        others = ours.connect(zookeeper_server.url)
        holder = await ours.acquire(others, "job")
        lost = lose(proxy.on(Op.CREATE2, containing="-lock-"))
        waiting = ours.caller().do(lambda: locks.lock("job").acquire(timeout=20))
        await until(lambda: len(queue.nodes()) == 2)
        behind = ours.caller().do(lambda: others.lock("job").acquire(timeout=20))
        await until(lambda: len(queue.nodes()) == 3)
        first, second, third = queue.tokens()
        assert lost.fired
        await ours.do(holder.release)
        lease = await waiting
        assert (first, second) == (holder.token, lease.token)
        await ours.do(lease.release)
        lease = await behind
        assert lease.token == third
        await ours.do(lease.release)


@APIS
async def test_create_that_arrives_late_is_not_executed(
    api: Api, proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient
) -> None:
    """The request is delayed for longer than the client waits for the answer and for its connection."""
    queue = QueueNodes(zookeeper, "job")
    async with open_clients(api) as ours:
        locks = await connect_and_take_once(ours, proxied, "job")
        before = queue.ever()
        delayed = proxy.on(Op.CREATE2).delay(side="request")
        lease = await ours.acquire(locks, "job", LONG)
        assert delayed.fired
        connections = proxy.connections
        delayed.release()
        await until(lambda: proxy.connections < connections)
        assert queue.tokens() == [lease.token]
        assert queue.ever() == before + 1


@APIS
async def test_acquire_of_unknown_outcome_is_withdrawn_after_reconnecting(
    api: Api, proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient
) -> None:
    queue = QueueNodes(zookeeper, "job")
    async with open_clients(api) as ours:
        locks = await connect_and_take_once(ours, proxied, "job", ttl=30.0)
        proxy.refuse()
        proxy.on(Op.CREATE2).drop_reply_and_reset()
        with pytest.raises(holdfast.OutcomeUnknown):
            await ours.acquire(locks, "job", timeout=0.3)
        await until(lambda: len(queue.nodes()) == 1)
        proxy.accept()
        await until(lambda: not queue.nodes(), CONNECTED_AGAIN_WITHIN)


# ---- waiting


def lose_the_connection(proxy: ZooKeeperProxy) -> None:
    assert proxy.cut_all() == 1


def lose_the_event(proxy: ZooKeeperProxy) -> None:
    """The event is lost together with its connection."""
    proxy.on(Op.EVENT).drop_reply_and_reset()


def black_hole_the_event(proxy: ZooKeeperProxy) -> None:
    proxy.on(Op.EVENT).black_hole()


@APIS
@pytest.mark.parametrize("arm", [lose_the_connection, lose_the_event, black_hole_the_event])
async def test_lost_watch_does_not_change_the_order_of_the_queue(
    api: Api,
    arm: Callable[[ZooKeeperProxy], None],
    proxy: ZooKeeperProxy,
    proxied: str,
    zookeeper_server: ZooKeeperServer,
) -> None:
    queue = QueueNodes(zookeeper_server.client(), "job")
    async with open_clients(api) as ours:
        locks, others = await connect_and_take_once(ours, proxied, "job"), ours.connect(zookeeper_server.url)
        holder = await ours.acquire(others, "job")
        watching = proxy.on(Op.GET_DATA).delay(0.0)
        waiting = ours.caller().do(lambda: locks.lock("job").acquire(timeout=20))
        await until(lambda: watching.fired)
        behind = ours.caller().do(lambda: others.lock("job").acquire(timeout=20))
        await until(lambda: len(queue.nodes()) == 3)
        _, second, third = queue.tokens()
        arm(proxy)
        await ours.do(holder.release)
        released = clock.now()
        lease = await waiting
        assert clock.now() - released < TTL + SLACK, "detected by the lost connection, not by a later poll"
        assert lease.token == second
        assert not behind.done()
        assert queue.tokens() == [second, third]
        await ours.do(lease.release)
        lease = await behind
        assert lease.token == third
        await ours.do(lease.release)


# ---- holding


async def test_holder_whose_connections_are_cut_keeps_its_lease_in_the_same_session(
    proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient
) -> None:
    reports = LossReports()
    async with open_clients("sync") as threads, open_clients("async") as tasks:
        leases = {}
        for ours in (threads, tasks):
            leases[ours] = await ours.acquire(ours.connect(proxied, ttl=LASTING), ours.api, on_lost=reports)
        lost_without_renewals = max(map(ends, leases.values()))
        while clock.now() < lost_without_renewals:
            await until(lambda: proxy.connections == 2)
            cut = clock.now()
            assert proxy.cut_all() == 2
            for lease in leases.values():
                await until_renewed(lease, since=cut)
        assert reports.at == []
        for ours, lease in leases.items():
            assert lease.held
            assert QueueNodes(zookeeper, ours.api).tokens() == [lease.token]
            await ours.do(lease.release)


async def test_black_hole_for_longer_than_the_session_is_reported_as_loss(
    proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient
) -> None:
    async with open_clients("sync") as threads, open_clients("async") as tasks:
        both = [BlackholedHolder(ours, proxied, zookeeper) for ours in (threads, tasks)]
        for each in both:
            await each.begin()
        proxy.black_hole_all()
        began = clock.now()
        await asyncio.gather(*(each.check_loss(began) for each in both))
        for each in both:
            await until(lambda: not each.queue.nodes())  # noqa: B023
        proxy.heal()
        for each in both:
            await each.acquire_again()


async def test_lock_lost_in_a_black_hole_is_released_after_reconnecting(
    proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The session has survived. Its node would block all other clients for as long as the client lives."""
    async with open_clients("sync") as threads, open_clients("async") as tasks:
        both = [BlackholedHolder(ours, proxied, zookeeper) for ours in (threads, tasks)]
        for each in both:
            await each.begin()
        proxy.black_hole_all()
        began = clock.now()
        await asyncio.gather(*(each.check_loss(began) for each in both))
        proxy.heal()
        for each in both:
            await until(lambda: not each.queue.nodes(), CONNECTED_AGAIN_WITHIN)  # noqa: B023
        assert "session has ended" not in caplog.text


class BlackholedHolder:
    """A holder that receives no answers."""

    def __init__(self, ours: Clients, url: str, zookeeper: KazooClient) -> None:
        self.queue = QueueNodes(zookeeper, ours.api)
        self._ours = ours
        self._locks = ours.connect(url, ttl=LASTING, unavailable_after=LONG)
        self._reports = LossReports()
        self._lease: Any = None

    async def begin(self) -> None:
        self._lease = await self._ours.acquire(self._locks, self._ours.api, on_lost=self._reports)

    async def check_loss(self, began: float) -> None:
        assert await end_of_validity(self._lease) < began + LASTING
        await until(lambda: self._reports.at)
        assert self._reports.reasons == ["unreachable"]
        assert self.queue.tokens() == [self._lease.token], "the lease ends before the session"

    async def acquire_again(self) -> None:
        again = await self._ours.acquire(self._locks, self._ours.api, LONG)
        assert again.token > self._lease.token
        assert self.queue.tokens() == [again.token]
        with pytest.raises(holdfast.LockLost, match="unreachable"):
            await self._ours.do(self._lease.release)
        assert self.queue.tokens() == [again.token], "the old lease must not remove the node of the new one"


# ---- delete


@APIS
@every_loss
async def test_release_whose_request_or_answer_was_lost_succeeds(
    api: Api, lose: Loss, proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient
) -> None:
    queue = QueueNodes(zookeeper, "job")
    async with open_clients(api) as ours:
        # A release is retried while the lease is valid.
        locks = await connect_and_take_once(ours, proxied, "job", ttl=3.0)
        lease = await ours.acquire(locks, "job")
        lost = lose(proxy.on(Op.DELETE))
        await ours.do(lease.release)
        assert lost.fired
        assert lease.lost_reason is None
        assert queue.nodes() == []


async def test_release_that_reaches_no_server_is_of_unknown_outcome(
    proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient
) -> None:
    async with open_clients("sync") as threads, open_clients("async") as tasks:
        both = [(ours, await connect_and_take_once(ours, proxied, ours.api, ttl=LASTING)) for ours in (threads, tasks)]
        leases = [await ours.acquire(locks, ours.api) for ours, locks in both]
        queues = [QueueNodes(zookeeper, ours.api) for ours, _ in both]
        proxy.refuse()
        proxy.on(Op.DELETE, times=2).drop_request_and_reset()
        releases = [ours.do(lease.release) for (ours, _), lease in zip(both, leases, strict=True)]
        for outcome in await asyncio.gather(*releases, return_exceptions=True):
            assert isinstance(outcome, holdfast.OutcomeUnknown)
        assert [len(queue.nodes()) for queue in queues] == [1, 1]
        proxy.accept()
        for queue in queues:
            await until(lambda: not queue.nodes(), CONNECTED_AGAIN_WITHIN)  # noqa: B023
        for (ours, locks), lease in zip(both, leases, strict=True):
            again = await ours.acquire(locks, ours.api, LONG)
            assert again.token > lease.token


@APIS
@pytest.mark.parametrize("lose", [Occasion.drop_reply_and_reset, Occasion.drop_request_black_hole])
async def test_waiter_that_times_out_leaves_no_node_if_its_removal_is_lost(
    api: Api, lose: Loss, proxy: ZooKeeperProxy, proxied: str, zookeeper_server: ZooKeeperServer
) -> None:
    queue = QueueNodes(zookeeper_server.client(), "job")
    async with open_clients(api) as ours:
        locks = await connect_and_take_once(ours, proxied, "job", request_timeout=0.5)
        holder = await ours.acquire(ours.connect(zookeeper_server.url), "job")
        lost = lose(proxy.on(Op.DELETE))
        began = clock.now()
        with pytest.raises(holdfast.AcquireTimeout):
            await ours.acquire(locks, "job", timeout=0.5)
        assert clock.now() - began < 0.5 + 0.5 + SLACK
        await until(lambda: lost.fired)  # perhaps in the background: leaving is not waited for
        await until(lambda: queue.tokens() == [holder.token], TTL + SLACK)
        await ours.do(holder.release)
