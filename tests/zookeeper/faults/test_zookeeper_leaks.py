"""Threads, descriptors, watches, nodes and sessions return to the baseline (invariant I9)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.testing.conformance.opening import Api
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.clients import APIS, open_clients
from tests.support.leaks import Baseline
from tests.support.waiting import until
from tests.zookeeper.server_counts import ServerCounts

CYCLES = 200
AT_ONCE = 10
#: Seconds: enough to join the queue and set a watch, and hardly enough for either.
LONG_WAIT, SHORT_WAIT = 1.2, 0.03
BACK_WITHIN = 10.0


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    """A separate server: on the shared one, sessions of other tests may be about to end."""
    with ZooKeeperServer() as started:
        yield started


@APIS
@pytest.mark.needs_zookeeper
async def test_waits_that_time_out_leave_no_resources_behind(api: Api, server: ZooKeeperServer) -> None:
    server.flush()
    here, there = Baseline(), ServerCounts.of(server)
    await wait_until_timeout(api, server)
    await here.until_nothing_is_left(BACK_WITHIN)
    # The two locks and their parent are containers, which the server removes later.
    await back_at(there._replace(nodes=there.nodes + 3), server)


async def wait_until_timeout(api: Api, server: ZooKeeperServer) -> None:
    async with open_clients(api) as ours:
        callers = [ours.caller() for _ in range(AT_ONCE)]
        locks = ours.connect(server.url)
        await ours.do((await ours.acquire(locks, "other")).release)  # starts all threads of the client
        holder = await ours.acquire(ours.connect(server.url), "job")
        await until(lambda: ServerCounts.of(server).watches == 1)  # the holder's watch on its own node

        async def once(timeout: float) -> None:
            waits = [caller.do(lambda: locks.lock("job").try_acquire(timeout=timeout)) for caller in callers]
            for outcome in await asyncio.gather(*waits, return_exceptions=True):
                # On a busy machine the server may not answer in such a short time.
                assert outcome is None or isinstance(outcome, holdfast.EngineUnavailable)

        await once(LONG_WAIT)
        # A wait ends in time even if its place in the queue could not be left by then: the watchdog removes that.
        await until(lambda: ServerCounts.of(server).ephemeral == 1, BACK_WITHIN, "only the holder's node is left")
        here, there = Baseline(), ServerCounts.of(server)
        assert there.watches == 2, f"one more on the holder's node for any number of waiters: {there}"
        for _ in range(CYCLES // AT_ONCE):
            await once(SHORT_WAIT)
        await here.until_nothing_is_left(BACK_WITHIN)
        await back_at(there, server)
        await ours.do(holder.release)


async def back_at(baseline: ServerCounts, server: ZooKeeperServer) -> None:
    await until(lambda: _Counted(ServerCounts.of(server), baseline), BACK_WITHIN, f"no more than {baseline}")


class _Counted:
    """True if nothing is above the baseline; shows the counts otherwise. Less is no leak: a connection of an earlier
    request may have been about to end."""

    def __init__(self, counts: ServerCounts, baseline: ServerCounts) -> None:
        self._counts = counts
        self._baseline = baseline

    def __bool__(self) -> bool:
        return all(count <= before for count, before in zip(self._counts, self._baseline, strict=True))

    def __repr__(self) -> str:
        return repr(self._counts)
