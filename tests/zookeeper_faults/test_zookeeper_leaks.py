"""Nothing is left behind: threads, descriptors, watches, nodes and sessions are back at the baseline (I9)."""

from __future__ import annotations

from holdfast.testing.conformance.opening import Colour
from tests.failover.company import COLOURS, company, until
from tests.servers.zookeeper import ZooKeeperServer
from tests.zookeeper_faults.figures import Here, There

CYCLES = 200
AT_ONCE = 10


@COLOURS
async def test_waits_in_vain_leave_nothing_behind(colour: Colour, zookeeper_server: ZooKeeperServer) -> None:
    here, there = Here.now(), There.of(zookeeper_server)
    await wait_in_vain(colour, zookeeper_server)
    await until(lambda: Here.now() == here)
    # The lock itself and what is above it are containers: the server removes them in its own time.
    await until(lambda: There.of(zookeeper_server) == there._replace(nodes=there.nodes + 2))


async def wait_in_vain(colour: Colour, server: ZooKeeperServer) -> None:
    async with company(colour) as ours:
        callers = [ours.caller() for _ in range(AT_ONCE)]
        locks = ours.connect(server.url)
        holder = await ours.acquire(ours.connect(server.url), "job")

        async def once() -> None:
            waits = [caller.do(lambda: locks.lock("job").try_acquire(timeout=0.02)) for caller in callers]
            assert [await each for each in waits] == [None] * AT_ONCE

        await once()
        here, there = Here.now(), There.of(server)
        assert there.watches <= 2, "one on the holder's node, however many wait; and its own"
        for _ in range(CYCLES // AT_ONCE):
            await once()
        assert Here.now() == here
        await until(lambda: There.of(server) == there)
        await ours.do(holder.release)
