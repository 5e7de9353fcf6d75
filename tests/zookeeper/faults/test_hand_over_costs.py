"""The number of operations for each hand-over: the same for two waiters and for 32 (no herd)."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast.engines.zookeeper import hub
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.waiting import until
from tests.zookeeper.queue_nodes import QueueNodes
from tests.zookeeper.server_counts import ServerCounts
from tests.zookeeper.support import LONG_TIMEOUT

ROUNDS = 3
CLIENTS = 2
#: For each hold: the node is created and removed.
WRITES = 2
#: For each hold: list the queue, watch the predecessor, and list the queue again when the predecessor is gone.
READS = 3
#: A renewal may add a read of the client's own node.
EXTRA = 0.2


@pytest.mark.parametrize("waiters", [2, 8, 32])
async def test_operations_for_each_hand_over_do_not_grow_with_the_queue(
    waiters: int, zookeeper_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "MOMENT", 3600.0)  # a long-time holder watches its own node, which is another read
    queue = QueueNodes(zookeeper_server.client(), "job")
    async with (
        holdfast.aio.connect(zookeeper_server.url) as holders,
        holdfast.aio.connect(zookeeper_server.url, request_timeout=LONG_TIMEOUT) as one,
        holdfast.aio.connect(zookeeper_server.url, request_timeout=LONG_TIMEOUT) as other,
    ):
        holder = await holders.lock("job").acquire()
        before = zookeeper_server.operations()
        turns = [asyncio.create_task(take_turns((one, other)[number % CLIENTS])) for number in range(waiters)]
        # Reading the counts is not counted as an operation.
        await until(lambda: ServerCounts.of(zookeeper_server).ephemeral == waiters + 1)
        await holder.release()
        await asyncio.gather(*turns)
        spent = zookeeper_server.operations().since(before)
    turns_taken = waiters * ROUNDS
    reads, writes = spent.reads / turns_taken, (spent.writes - 1) / turns_taken  # without the first holder's removal
    print(f"{waiters} waiters: {reads:.2f} reads and {writes:.2f} writes for each hand-over")
    assert reads < READS + EXTRA
    assert writes < WRITES + EXTRA
    assert queue.nodes() == []


async def take_turns(locks: holdfast.aio.AsyncClient) -> None:
    for _ in range(ROUNDS):
        async with locks.lock("job", timeout=30):
            pass
