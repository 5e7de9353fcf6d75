"""A follower is cut off from its leader and continues to answer the client that holds a lock (rule 8).

The leader counts the client as silent, and the client does not know. The lease must end before the session does, even
if the follower is cut off at the moment at which it has answered for the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.protocol.states import EventType, WatchedEvent

from holdfast._runtime import clock
from tests.servers.ensemble import Ensemble, Member
from tests.servers.zookeeper import BASE
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.servers.zookeeper_wire import Op
from tests.support.child import Child
from tests.support.clients import Clients, LossReports, open_clients
from tests.support.waiting import eventually, until
from tests.zookeeper.queue_nodes import QueueNodes
from tests.zookeeper.validity import end_of_validity

#: Shorter than a member takes to detect that it is cut off: no lost connection notifies the client.
SESSION = 2.4
SYNC_LIMIT = 30  # ticks
NOTICED_WITHIN = 3.5
#: The longest silence of a session without a ping.
SILENCE = 0.4
ROUNDS = 3
#: The session of a client that is frozen for nearly half of it. A lease counted from the first request after the freeze
#: would outlast the session; the lease that it has during the freeze leaves time for that request.
LONG_SESSION = 4.0
FROZEN_FOR = 1.8
TIME_TO_RENEW = 0.8


@pytest.fixture(scope="module")
def _shared_ensemble() -> Iterator[Ensemble]:
    with Ensemble(sync_limit=SYNC_LIMIT) as started:
        yield started


@pytest.fixture
def follower(ensemble: Ensemble) -> Member:
    return ensemble.followers()[0]


@pytest.fixture
def proxy(follower: Member) -> Iterator[ZooKeeperProxy]:
    """The holder's only way to the follower."""
    with ZooKeeperProxy(follower.host, follower.port) as started:
        yield started


def url_of(*members: Member | ZooKeeperProxy) -> str:
    return f"zookeeper://{','.join(member.address for member in members)}{BASE}?tick=0.1"


class Disappearance:
    """When the head of the queue was removed, as another member reports it; None if that connection was lost."""

    def __init__(self, member: Member, name: str) -> None:
        self.at: float | None = None
        client = member.client()
        client.sync(BASE)
        queue = QueueNodes(client, name)
        (node,) = queue.nodes()
        assert client.exists(f"{queue.path}/{node}", watch=self._on_event)

    def _on_event(self, event: WatchedEvent) -> None:
        if event.type == EventType.DELETED:
            self.at = clock.now()


async def test_lease_ends_before_the_session_whenever_the_follower_is_cut_off(
    ensemble: Ensemble, follower: Member, proxy: ZooKeeperProxy
) -> None:
    async with open_clients("sync") as threads, open_clients("async") as tasks:
        both = [HolderAndWaiter(ours, proxy, ensemble, follower) for ours in (threads, tasks)]
        for turn in range(ROUNDS):
            for each in both:
                await each.begin()
            if turn:  # else right after the grant
                await both[turn % 2].renew_after_silence()
            ensemble.cut_off(follower)
            cut = clock.now()
            await asyncio.gather(*(each.check(cut) for each in both))
            ensemble.heal()
            ensemble.wait_until_complete()


class HolderAndWaiter:
    """A holder connected to the follower, and a waiter connected elsewhere."""

    def __init__(self, ours: Clients, proxy: ZooKeeperProxy, ensemble: Ensemble, follower: Member) -> None:
        self._ours = ours
        self._name = f"job-{ours.api}"
        others = [each for each in ensemble.members if each is not follower]
        self._elsewhere = others[0]
        self._proxy = proxy
        self._holders = ours.connect(url_of(proxy), ttl=SESSION, unavailable_after=20.0)
        self._others = ours.connect(url_of(*others), unavailable_after=20.0)
        self._waiter = ours.caller()
        self._reports = LossReports()
        self._lease: Any = None
        self._gone: Disappearance

    async def begin(self) -> None:
        self._reports = LossReports()
        self._lease = await self._ours.acquire(self._holders, self._name, timeout=20.0, on_lost=self._reports)
        self._gone = Disappearance(self._elsewhere, self._name)

    async def renew_after_silence(self) -> None:
        """Renew after a silence. The leader answers, but does not know yet that the request came from this client: it
        counts the session from before the silence."""
        request = self._proxy.on(Op.SYNC, containing=self._name).delay(0.0)
        await until(lambda: request.fired)
        await asyncio.sleep(SILENCE)
        await self._ours.do(self._lease.renew)

    async def check(self, cut: float) -> None:
        """Invariants I1, I7: the lease ends before another client can begin, and its loss is reported."""
        waiting = self._waiter.do(lambda: self._others.lock(self._name).acquire(timeout=20))
        ended = await end_of_validity(self._lease)
        assert self._lease.lost_reason in ("unreachable", "expired")
        assert ended < cut + SESSION
        second = await waiting
        assert ended < clock.now()
        assert self._gone.at is None or ended < self._gone.at
        assert second.token > self._lease.token
        await until(lambda: self._reports.at)
        await self._ours.do(second.release)


async def test_lease_ends_before_the_session_when_the_leader_is_cut_off(ensemble: Ensemble) -> None:
    """The old leader answers until it detects the cut; by then the others have elected a leader, which counts anew."""
    leader = ensemble.leader()
    with ZooKeeperProxy(leader.host, leader.port) as proxy:
        async with open_clients("sync") as threads, open_clients("async") as tasks:
            both = [HolderAndWaiter(ours, proxy, ensemble, leader) for ours in (threads, tasks)]
            for each in both:
                await each.begin()
            ensemble.cut_off(leader)
            await asyncio.gather(*(each.check(clock.now() + NOTICED_WITHIN) for each in both))


async def test_create_that_the_follower_forwards_late_is_not_executed(
    ensemble: Ensemble, follower: Member, proxy: ZooKeeperProxy
) -> None:
    """The follower still has the request after the client moved its session to another member and repeated it there."""
    observer = follower.client()
    elsewhere = next(each for each in ensemble.followers() if each is not follower)
    url = f"{url_of(proxy, elsewhere)}&randomize_hosts=false"
    async with open_clients("sync") as threads, open_clients("async") as tasks:
        timeouts = {"request_timeout": 0.2, "unavailable_after": 20.0}
        both = {ours: ours.connect(url, ttl=3.0, **timeouts) for ours in (threads, tasks)}
        for ours, locks in both.items():
            await ours.do((await ours.acquire(locks, ours.api)).release)
        proxy.refuse()
        ensemble.cut_off(follower)
        stuck = proxy.on(Op.CREATE2, times=2).notice()
        leases = await asyncio.gather(*(ours.acquire(locks, ours.api, 20.0) for ours, locks in both.items()))
        assert len(stuck.hits) == 2
        ensemble.heal()
        observer.sync(BASE)  # answered after the requests that the follower forwarded before
        for ours, lease in zip(both, leases, strict=True):
            queue = QueueNodes(observer, ours.api)
            assert queue.tokens() == [lease.token]
            assert queue.ever() == 2


def test_lease_ends_before_the_session_if_the_holder_was_frozen_before_the_cut(
    ensemble: Ensemble, follower: Member, proxy: ZooKeeperProxy
) -> None:
    """The holder is frozen for less than its lease lasts and may continue. Its first renewal is answered, and the
    follower is cut off at that moment; the leader counts from before the freeze."""
    with Child(url_of(proxy), ttl=LONG_SESSION) as victim:
        victim.do("keep.update(lease=locks.lock('job').acquire())")
        gone = Disappearance(ensemble.leader(), "job")
        eventually(lambda: victim.do(REMAINING) > FROZEN_FOR + TIME_TO_RENEW)
        victim.freeze()
        frozen = clock.now()
        renewed = proxy.on(Op.SYNC).delay(0.0)
        eventually(lambda: clock.now() - frozen > FROZEN_FOR)
        victim.wake()
        assert renewed.wait(TIME_TO_RENEW)
        ensemble.cut_off(follower)
        ended = clock.now()
        while remaining := victim.do(REMAINING):
            ended = max(ended, clock.now() + remaining)
        eventually(lambda: gone.at)
        assert gone.at is not None
        assert ended < gone.at


REMAINING = "keep['lease'].remaining"
