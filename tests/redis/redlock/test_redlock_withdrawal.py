"""Grants without a majority are withdrawn from every server, also where the reply was lost (invariants I4, I8)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence

import pytest

import holdfast
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Found
from holdfast.engines.redis import scripts
from holdfast.engines.redis.connections.blocking_group import BlockingKeeperGroup
from holdfast.engines.redis.connections.blocking_keeper import BlockingKeeperChannel
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.redlock import connect
from holdfast.testing.conformance.opening import Api
from holdfast.testing.faults import Rule
from holdfast.testing.proxy import FaultProxy
from tests.redis.redlock.support import (
    LASTING,
    LONG_TIMEOUT,
    REPAIR_TIME,
    Proxies,
    connect_to_all,
    has_tombstone,
    on,
    owner_in,
    owners,
)
from tests.redis.support import make_attempt
from tests.servers.masters import Masters
from tests.support.signal_injector import interrupting
from tests.support.waiting import eventually

NO_OWNERS = [None] * 5


def reply_lost_by_reset(proxy: FaultProxy) -> Rule:
    return proxy.on(script=scripts.ACQUIRE).drop_reply_and_reset()


def reply_lost_in_a_black_hole(proxy: FaultProxy) -> Rule:
    return proxy.on(script=scripts.ACQUIRE).black_hole()


def request_late(proxy: FaultProxy) -> Rule:
    return proxy.on(script=scripts.ACQUIRE).delay(side="request")


class Lost:
    """The server behind ``proxy`` grants, but its reply is lost; no withdrawal or repeated request reaches it until
    ``heal``."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._granted = proxy.on(script=scripts.ACQUIRE).black_hole()
        self._rules = [
            proxy.on(script=script, times=None).drop_request_black_hole()
            for script in (scripts.ACQUIRE, scripts.RELEASE)
        ]

    @property
    def owner(self) -> str:
        """The owner of the grant."""
        return owner_in(self._granted.hits[0])

    def heal(self) -> None:
        for rule in self._rules:
            rule.cancel()


@pytest.mark.parametrize("lose", [reply_lost_by_reset, reply_lost_in_a_black_hole, request_late])
async def test_grants_with_lost_replies_are_withdrawn_and_requested_again(
    five_masters: Masters, proxies: Proxies, api: Api, lose: Callable[[FaultProxy], Rule]
) -> None:
    async with on(proxies.url, api) as world:
        client = world.connect(request_timeout=4.0)
        await connect_to_all(world, client)
        lost = [lose(proxy) for proxy in proxies[2:]]
        lease = await world.do(lambda: client.lock("it").acquire(timeout=20))
        (first,) = {owner_in(rule.hits[0]) for rule in lost}
        assert lease.owner != first, "a new owner: a late duplicate of its withdrawal must not hit this grant"
        assert owners(five_masters, "it") == [lease.owner] * 5
        assert all(has_tombstone(server, "it", first) for server in five_masters.servers[2:])
        await world.do(lease.release)
        for rule in lost:
            rule.release()  # the late request arrives now and meets its tombstone
        await world.do((await world.do(client.lock("it").acquire)).release)
        await world.until(lambda: owners(five_masters, "it") == NO_OWNERS, within=REPAIR_TIME)


async def test_unreachable_grant_is_withdrawn_once_its_server_is_reachable(
    five_masters: Masters, proxies: Proxies, api: Api
) -> None:
    async with on(proxies.url, api) as world:
        client = world.connect(ttl=60, unavailable_after=0.5, request_timeout=1.6)
        await connect_to_all(world, client)
        lost = [Lost(proxy) for proxy in proxies[2:]]
        with pytest.raises(holdfast.QuorumLost) as caught:
            await world.do(client.lock("it").acquire)
        assert isinstance(caught.value, holdfast.OutcomeUnknown)
        (owner,) = {each.owner for each in lost}
        await world.until(lambda: owners(five_masters, "it") == [None, None, owner, owner, owner], within=REPAIR_TIME)
        for each in lost:
            each.heal()
        await world.until(lambda: owners(five_masters, "it") == NO_OWNERS, within=REPAIR_TIME)
        assert all(has_tombstone(server, "it", owner) for server in five_masters.servers)


async def test_acquire_does_not_wait_for_its_own_leftovers(five_masters: Masters, proxies: Proxies, api: Api) -> None:
    """Granted by three servers whose replies were lost and which were unreachable for the withdrawal."""
    async with on(proxies.url, api) as world:
        client = world.connect(ttl=120, unavailable_after=50, request_timeout=1.6)
        await connect_to_all(world, client)
        lost = [Lost(proxy) for proxy in proxies[2:]]
        again = proxies[0].on(script=scripts.ACQUIRE, nth=2).notice()
        waiting = world.actor().do(lambda: client.lock("it").acquire(timeout=50))
        await world.until(lambda: again.fired, within=REPAIR_TIME)
        began = time.monotonic()
        for each in lost:
            each.heal()
        lease = await waiting
        assert time.monotonic() - began < REPAIR_TIME, "not after the 120 s ttl of its own leftovers"
        assert owners(five_masters, "it").count(lease.owner) >= 3
        await world.do(lease.release)
        await world.until(lambda: owners(five_masters, "it") == NO_OWNERS, within=REPAIR_TIME)


async def test_late_join_does_not_restore_a_released_lock(five_masters: Masters, proxies: Proxies, api: Api) -> None:
    async with on(proxies.url, api) as world:
        client = world.connect(ttl=60, request_timeout=4.0)
        lease = await world.do(client.lock("it").acquire)
        joining = proxies[4].on(script=scripts.JOIN).delay(side="request")
        five_masters.servers[4].ask("FLUSHALL")
        five_masters.servers[4].ask("SCRIPT", "LOAD", scripts.JOIN.source)
        await world.do(lease.renew)
        assert joining.fired
        assert owners(five_masters, "it") == [lease.owner] * 4 + [None]
        await world.do(lease.release)
        seen = five_masters.servers[4].ask("INFO", "commandstats")["cmdstat_evalsha"]["calls"]
        joining.release()
        await world.until(
            lambda: five_masters.servers[4].ask("INFO", "commandstats")["cmdstat_evalsha"]["calls"] > seen
        )
        assert owners(five_masters, "it") == NO_OWNERS


def test_release_that_overtakes_a_join_wins(five_masters: Masters) -> None:
    """Join and release run on two threads: the join was decided earlier but arrives after the release."""
    engine = connect([f"redis://{server.address}" for server in five_masters.servers], {})
    keeper, caller = engine.keeper(BLOCKING), engine.session(BLOCKING)

    class Overtaken(BlockingKeeperGroup):
        async def ask_each(
            self, requests: Sequence[tuple[BlockingKeeperChannel, Sequence[Call]]], replicas: int, timeout: float
        ) -> list[Sequence[Answer]]:
            if requests[0][1][0].script is scripts.JOIN:
                attempt.unresolved = False  # as it was when the releasing thread checked it
                assert await caller.release(attempt, LONG_TIMEOUT) is Found.OURS
            return await super().ask_each(requests, replicas, timeout)

    keeper._leases._servers.group = Overtaken()
    attempt = make_attempt("it", ttl=60)
    try:
        assert hasattr(run(caller.acquire(attempt, LONG_TIMEOUT)), "token")
        five_masters.servers[2].ask("FLUSHALL")
        assert run(keeper.renew([attempt], 60, LONG_TIMEOUT)) == [Found.OURS], "as it was when the servers were asked"
        assert owners(five_masters, "it") == NO_OWNERS
    finally:
        run(keeper.close())
        run(caller.close())


# ---- cancelled, interrupted


async def test_acquire_cancelled_at_any_step_leaves_no_grant_on_any_server(five_masters: Masters) -> None:
    async with on(five_masters.url, "async") as world:
        client = world.connect(ttl=60)
        names = [f"cancelled-{steps}" for steps in range(40)]
        for steps, name in enumerate(names):
            if steps % 2:
                await client.ping()  # connects, so that the steps below do not include connecting
            task = asyncio.ensure_future(client.lock(name).acquire())
            for _ in range(steps // 2):
                await asyncio.sleep(0)
            task.cancel()
            try:
                await (await task).release()
            except asyncio.CancelledError:
                pass
        await world.until(lambda: all(owners(five_masters, name) == NO_OWNERS for name in names), within=REPAIR_TIME)
        late = await client.lock(names[0]).acquire(timeout=10)
        await late.release()


# A socket of a connect() that was interrupted inside the driver can only be garbage-collected.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore:a lease on lock:ResourceWarning")
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")  # interrupted before its first step
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupted inside a __del__
def test_ctrl_c_at_any_moment_leaves_no_orphan_on_any_server(five_masters: Masters) -> None:
    """A timer interrupts acquire, renew and release at many moments."""

    def acquire_renew_release() -> None:
        lease = lock.acquire(timeout=10)
        lease.renew()
        lease.release()

    with interrupting() as interrupt, holdfast.connect(five_masters.url, ttl=LASTING) as locks:
        lock = locks.lock("interrupted", reentrant=False)
        locks.ping()
        assert sum(interrupt(random.uniform(10e-6, 3e-3), acquire_renew_release) for _ in range(150)) > 30
        with lock.acquire(timeout=LASTING + 5) as last:  # at worst the lock expires after its ttl
            last.renew()
        eventually(lambda: owners(five_masters, "interrupted") == NO_OWNERS)
