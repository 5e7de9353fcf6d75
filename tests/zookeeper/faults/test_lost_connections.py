"""The connection breaks or goes dark at each request, and the session lives on (faults N1, N5, Z1, Z2)."""

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

#: A session that lives through a dark connection and a machine that stands still, one after the other.
TTL = 2.4
#: What is done at once may take this much longer on a machine that stands still for a while.
SLACK = 1.5
#: An attempt a second, at the latest.
CONNECTED_AGAIN_WITHIN = 1.0 + SLACK
#: Of an acquire: never the reason for anything.
LONG = 20.0

Loss = Callable[[Occasion], Rule]
RAN = [Occasion.drop_reply_and_reset, Occasion.black_hole]
DID_NOT_RUN = [Occasion.drop_request_and_reset, Occasion.drop_request_black_hole]
every_loss = pytest.mark.parametrize("lose", RAN + DID_NOT_RUN)
every_lost_reply = pytest.mark.parametrize("lose", RAN)


async def taken_once(ours: Clients, url: str, name: str, **options: float) -> holdfast.Client:
    """A client that has had this lock: what is above its node is there, and the session."""
    locks = ours.connect(url, **{"ttl": TTL, "request_timeout": 0.25, "unavailable_after": LONG, **options})
    lease = await ours.acquire(locks, name, LONG)
    await ours.do(lease.release)
    return locks  # type: ignore[no-any-return]


# ---- create


@APIS
@every_loss
async def test_a_create_whose_answer_was_lost_is_found_again(
    api: Api, lose: Loss, proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient
) -> None:
    line = QueueNodes(zookeeper, "job")
    async with open_clients(api) as ours:
        locks = await taken_once(ours, proxied, "job")
        before = line.ever()
        lost = lose(proxy.on(Op.CREATE2, containing="-lock-"))
        lease = await ours.acquire(locks, "job", LONG)
        assert lost.fired
        assert line.tokens() == [lease.token], "one node, and it is the lease's"
        assert line.ever() == before + 1, "there was never a second one"
        assert lease.held
        await ours.do(lease.release)
        assert line.nodes() == []


@APIS
@every_lost_reply
async def test_a_waiter_whose_create_was_not_answered_keeps_its_place(
    api: Api, lose: Loss, proxy: ZooKeeperProxy, proxied: str, zookeeper_server: ZooKeeperServer
) -> None:
    line = QueueNodes(zookeeper_server.client(), "job")
    async with open_clients(api) as ours:
        locks = await taken_once(ours, proxied, "job")
        others = ours.connect(zookeeper_server.url)
        holder = await ours.acquire(others, "job")
        lost = lose(proxy.on(Op.CREATE2, containing="-lock-"))
        waiting = ours.caller().do(lambda: locks.lock("job").acquire(timeout=20))
        await until(lambda: len(line.nodes()) == 2)
        behind = ours.caller().do(lambda: others.lock("job").acquire(timeout=20))
        await until(lambda: len(line.nodes()) == 3)
        first, second, third = line.tokens()
        assert lost.fired
        await ours.do(holder.release)
        lease = await waiting
        assert (first, second) == (holder.token, lease.token)
        await ours.do(lease.release)
        lease = await behind
        assert lease.token == third
        await ours.do(lease.release)


@APIS
async def test_a_create_that_arrives_late_is_not_carried_out(
    api: Api, proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient
) -> None:
    """It is held up on its way, for longer than the client waits for it and for its connection."""
    line = QueueNodes(zookeeper, "job")
    async with open_clients(api) as ours:
        locks = await taken_once(ours, proxied, "job")
        before = line.ever()
        held_up = proxy.on(Op.CREATE2).delay(side="request")
        lease = await ours.acquire(locks, "job", LONG)
        assert held_up.fired
        connections = proxy.connections
        held_up.release()
        await until(lambda: proxy.connections < connections)
        assert line.tokens() == [lease.token]
        assert line.ever() == before + 1


@APIS
async def test_an_acquire_of_unknown_outcome_is_withdrawn_as_soon_as_it_can_be(
    api: Api, proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient
) -> None:
    line = QueueNodes(zookeeper, "job")
    async with open_clients(api) as ours:
        locks = await taken_once(ours, proxied, "job", ttl=30.0)
        proxy.refuse()
        proxy.on(Op.CREATE2).drop_reply_and_reset()
        with pytest.raises(holdfast.OutcomeUnknown):
            await ours.acquire(locks, "job", timeout=0.3)
        await until(lambda: len(line.nodes()) == 1)
        proxy.accept()
        await until(lambda: not line.nodes(), CONNECTED_AGAIN_WITHIN)


# ---- the wait


def connection_lost(proxy: ZooKeeperProxy) -> None:
    assert proxy.cut_all() == 1


def told_by_nobody(proxy: ZooKeeperProxy) -> None:
    """The event itself is lost, with its connection."""
    proxy.on(Op.EVENT).drop_reply_and_reset()


def told_in_the_dark(proxy: ZooKeeperProxy) -> None:
    proxy.on(Op.EVENT).black_hole()


@APIS
@pytest.mark.parametrize("arm", [connection_lost, told_by_nobody, told_in_the_dark])
async def test_a_watch_that_is_lost_costs_no_place_in_line(
    api: Api,
    arm: Callable[[ZooKeeperProxy], None],
    proxy: ZooKeeperProxy,
    proxied: str,
    zookeeper_server: ZooKeeperServer,
) -> None:
    line = QueueNodes(zookeeper_server.client(), "job")
    async with open_clients(api) as ours:
        locks, others = await taken_once(ours, proxied, "job"), ours.connect(zookeeper_server.url)
        holder = await ours.acquire(others, "job")
        watching = proxy.on(Op.GET_DATA).delay(0.0)
        waiting = ours.caller().do(lambda: locks.lock("job").acquire(timeout=20))
        await until(lambda: watching.fired)
        behind = ours.caller().do(lambda: others.lock("job").acquire(timeout=20))
        await until(lambda: len(line.nodes()) == 3)
        _, second, third = line.tokens()
        arm(proxy)
        await ours.do(holder.release)
        released = clock.now()
        lease = await waiting
        assert clock.now() - released < TTL + SLACK, "noticed with the connection, not by another look some day"
        assert lease.token == second
        assert not behind.done()
        assert line.tokens() == [second, third]
        await ours.do(lease.release)
        lease = await behind
        assert lease.token == third
        await ours.do(lease.release)


# ---- holding


async def test_a_holder_whose_connections_are_cut_goes_on_in_the_same_session(
    proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient
) -> None:
    told = LossReports()
    async with open_clients("sync") as threads, open_clients("async") as tasks:
        leases = {}
        for ours in (threads, tasks):
            leases[ours] = await ours.acquire(ours.connect(proxied, ttl=LASTING), ours.api, on_lost=told)
        lost_without_renewals = max(map(ends, leases.values()))
        while clock.now() < lost_without_renewals:
            await until(lambda: proxy.connections == 2)
            cut = clock.now()
            assert proxy.cut_all() == 2
            for lease in leases.values():
                await until_renewed(lease, since=cut)
        assert told.at == []
        for ours, lease in leases.items():
            assert lease.held
            assert QueueNodes(zookeeper, ours.api).tokens() == [lease.token]
            await ours.do(lease.release)


async def test_a_black_hole_for_longer_than_the_session_is_told(
    proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient
) -> None:
    async with open_clients("sync") as threads, open_clients("async") as tasks:
        both = [InTheDark(ours, proxied, zookeeper) for ours in (threads, tasks)]
        for each in both:
            await each.begin()
        proxy.black_hole_all()
        dark = clock.now()
        await asyncio.gather(*(each.is_told(dark) for each in both))
        for each in both:
            await until(lambda: not each.line.nodes())  # noqa: B023
        proxy.heal()
        for each in both:
            await each.begins_anew()


async def test_a_lock_lost_in_the_dark_is_given_up_when_the_light_is_back(
    proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The session has come through. Its node would hold up everybody else for as long as the client lives."""
    async with open_clients("sync") as threads, open_clients("async") as tasks:
        both = [InTheDark(ours, proxied, zookeeper) for ours in (threads, tasks)]
        for each in both:
            await each.begin()
        proxy.black_hole_all()
        dark = clock.now()
        await asyncio.gather(*(each.is_told(dark) for each in both))
        proxy.heal()
        for each in both:
            await until(lambda: not each.line.nodes(), CONNECTED_AGAIN_WITHIN)  # noqa: B023
        assert "session has ended" not in caplog.text


class InTheDark:
    """One who holds, and whom no word reaches."""

    def __init__(self, ours: Clients, url: str, zookeeper: KazooClient) -> None:
        self.line = QueueNodes(zookeeper, ours.api)
        self._ours = ours
        self._locks = ours.connect(url, ttl=LASTING, unavailable_after=LONG)
        self._told = LossReports()
        self._lease: Any = None

    async def begin(self) -> None:
        self._lease = await self._ours.acquire(self._locks, self._ours.api, on_lost=self._told)

    async def is_told(self, dark: float) -> None:
        assert await end_of_validity(self._lease) < dark + LASTING
        await until(lambda: self._told.at)
        assert self._told.reasons == ["unreachable"]
        assert self.line.tokens() == [self._lease.token], "belief ends first"

    async def begins_anew(self) -> None:
        again = await self._ours.acquire(self._locks, self._ours.api, LONG)
        assert again.token > self._lease.token
        assert self.line.tokens() == [again.token]
        with pytest.raises(holdfast.LockLost, match="unreachable"):
            await self._ours.do(self._lease.release)
        assert self.line.tokens() == [again.token], "a new session's node is not the old one's"


# ---- delete


@APIS
@every_loss
async def test_a_release_whose_answer_was_lost_succeeds(
    api: Api, lose: Loss, proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient
) -> None:
    line = QueueNodes(zookeeper, "job")
    async with open_clients(api) as ours:
        locks = await taken_once(ours, proxied, "job", ttl=3.0)  # a release is tried for as long as it is believed in
        lease = await ours.acquire(locks, "job")
        lost = lose(proxy.on(Op.DELETE))
        await ours.do(lease.release)
        assert lost.fired
        assert lease.lost_reason is None
        assert line.nodes() == []


async def test_a_release_that_nobody_hears_is_of_unknown_outcome(
    proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient
) -> None:
    async with open_clients("sync") as threads, open_clients("async") as tasks:
        both = [(ours, await taken_once(ours, proxied, ours.api, ttl=LASTING)) for ours in (threads, tasks)]
        leases = [await ours.acquire(locks, ours.api) for ours, locks in both]
        lines = [QueueNodes(zookeeper, ours.api) for ours, _ in both]
        proxy.refuse()
        proxy.on(Op.DELETE, times=2).drop_request_and_reset()
        releases = [ours.do(lease.release) for (ours, _), lease in zip(both, leases, strict=True)]
        for outcome in await asyncio.gather(*releases, return_exceptions=True):
            assert isinstance(outcome, holdfast.OutcomeUnknown)
        assert [len(line.nodes()) for line in lines] == [1, 1]
        proxy.accept()
        for line in lines:
            await until(lambda: not line.nodes(), CONNECTED_AGAIN_WITHIN)  # noqa: B023
        for (ours, locks), lease in zip(both, leases, strict=True):
            again = await ours.acquire(locks, ours.api, LONG)
            assert again.token > lease.token


@APIS
@pytest.mark.parametrize("lose", [Occasion.drop_reply_and_reset, Occasion.drop_request_black_hole])
async def test_a_waiter_that_gives_up_leaves_no_node_whatever_is_lost(
    api: Api, lose: Loss, proxy: ZooKeeperProxy, proxied: str, zookeeper_server: ZooKeeperServer
) -> None:
    line = QueueNodes(zookeeper_server.client(), "job")
    async with open_clients(api) as ours:
        locks = await taken_once(ours, proxied, "job", request_timeout=0.5)
        holder = await ours.acquire(ours.connect(zookeeper_server.url), "job")
        lost = lose(proxy.on(Op.DELETE))
        began = clock.now()
        with pytest.raises(holdfast.AcquireTimeout):
            await ours.acquire(locks, "job", timeout=0.5)
        assert clock.now() - began < 0.5 + 0.5 + SLACK
        assert lost.fired
        await until(lambda: line.tokens() == [holder.token], TTL + SLACK)
        await ours.do(holder.release)
