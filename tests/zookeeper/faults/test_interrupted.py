"""Acquires cancelled or interrupted at any moment leave no node (invariant I8, faults R5, R6)."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest
from kazoo.client import KazooClient

import holdfast
from tests.servers.zookeeper import ZooKeeperServer
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.servers.zookeeper_wire import Op
from tests.support.signal_injector import interrupting
from tests.support.waiting import eventually, until
from tests.zookeeper.queue_nodes import QueueNodes

#: Far longer than any test here: a node that disappears was removed by the client, not with its session.
TTL = 30.0
GONE_WITHIN = 4.0

#: The steps of an acquire of a free lock.
STEPS = [(Op.CREATE2, "request"), (Op.CREATE2, "reply"), (Op.GET_CHILDREN, "reply")]


@pytest.mark.parametrize("op, side", STEPS)
async def test_acquire_cancelled_between_request_and_answer_leaves_no_node(
    op: Op, side: str, proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient
) -> None:
    queue = QueueNodes(zookeeper, "job")
    async with holdfast.aio.connect(proxied, ttl=TTL) as locks:
        await (await locks.lock("job").acquire()).release()
        held_back = proxy.on(op).delay(side=side)  # type: ignore[arg-type]
        task = asyncio.create_task(locks.lock("job").acquire())
        await until(lambda: held_back.fired)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        before = queue.ever()
        held_back.release()
        if side == "request":
            await until(lambda: queue.ever() == before + 1)  # executed, although its caller was cancelled
        await until(lambda: not queue.nodes(), GONE_WITHIN)
        async with locks.lock("job", timeout=GONE_WITHIN) as lease:
            assert queue.tokens() == [lease.token]


@pytest.mark.parametrize("moment", ["before its watch", "asleep"])
async def test_cancelled_waiter_leaves_no_node(
    moment: str, proxy: ZooKeeperProxy, proxied: str, zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    queue = QueueNodes(zookeeper, "job")
    async with (
        holdfast.aio.connect(proxied, ttl=TTL) as locks,
        holdfast.aio.connect(zookeeper_server.url) as others,
        others.lock("job") as holder,
    ):
        watching = proxy.on(Op.GET_DATA).delay(0.0 if moment == "asleep" else None)
        task = asyncio.create_task(locks.lock("job").acquire())
        await until(lambda: watching.fired)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        watching.release()
        await until(lambda: queue.tokens() == [holder.token], GONE_WITHIN)


async def test_acquire_cancelled_at_any_moment_leaves_no_node(
    zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    queue = QueueNodes(zookeeper, "job")
    async with holdfast.aio.connect(zookeeper_server.url, ttl=TTL) as locks:
        await (await locks.lock("job").acquire()).release()
        for moment in range(100):
            task = asyncio.create_task(locks.lock("job").acquire())
            await asyncio.sleep(moment * 50e-6)
            task.cancel()
            try:
                await (await task).release()
            except asyncio.CancelledError:
                pass
        await until(lambda: not queue.nodes(), GONE_WITHIN)


@pytest.mark.parametrize("op, side", [*STEPS, (Op.GET_DATA, "reply")])
def test_ctrl_c_between_request_and_answer_leaves_no_node(
    op: Op, side: str, proxy: ZooKeeperProxy, proxied: str, zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    queue = QueueNodes(zookeeper, "job")
    with holdfast.connect(proxied, ttl=TTL) as locks, holdfast.connect(zookeeper_server.url) as others:
        locks.lock("job").acquire().release()
        holder = others.lock("job").acquire() if op is Op.GET_DATA else None
        held_back = proxy.on(op).delay(side=side)  # type: ignore[arg-type]

        def interrupt() -> None:
            assert held_back.wait(5)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            locks.lock("job", reentrant=False).acquire()
        thread.join()
        held_back.release()
        eventually(lambda: queue.tokens() == ([] if holder is None else [holder.token]), GONE_WITHIN)
        if holder is not None:
            holder.release()
        locks.lock("job").acquire(timeout=GONE_WITHIN).release()


@pytest.mark.filterwarnings("ignore:a lease on lock:ResourceWarning")  # interrupted before the caller got the lease
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")  # interrupted before its first step
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupted inside a __del__
def test_ctrl_c_at_any_moment_leaves_no_node(zookeeper_server: ZooKeeperServer, zookeeper: KazooClient) -> None:
    queue = QueueNodes(zookeeper, "job")
    with interrupting() as interrupt, holdfast.connect(zookeeper_server.url, ttl=TTL) as locks:
        lock = locks.lock("job")
        lock.acquire().release()
        for moment in range(1, 150):
            interrupt(moment * 20e-6, lambda: lock.acquire(timeout=5).release())
        eventually(lambda: not queue.nodes(), 2 * GONE_WITHIN)
