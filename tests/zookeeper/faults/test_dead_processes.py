"""kill -9 of a holder or a waiter: the next waiters proceed when the dead client's session has ended (invariant I6)."""

from __future__ import annotations

from kazoo.client import KazooClient

from holdfast._runtime import clock
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.child import Child
from tests.support.clients import open_clients
from tests.support.waiting import until
from tests.zookeeper.queue_nodes import QueueNodes

#: The victim's ttl. Its session must survive a scheduler stall until the victim is killed.
TTL = 2.0
#: Issue 4: the allowed delay after the session's timeout.
GRACE = 1.0


async def test_waiter_of_a_killed_holder_is_granted_when_the_session_has_ended(
    zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    with Child(zookeeper_server.url, ttl=TTL) as victim:
        async with open_clients("sync") as threads, open_clients("async") as tasks:
            waiting = {}
            for ours in (threads, tasks):
                victim.do(f"keep.update({ours.api}_=locks.lock({ours.api!r}).acquire())")
                lock = ours.connect(zookeeper_server.url).lock(ours.api)
                waiting[ours] = ours.caller().do(lambda lock=lock: lock.acquire(timeout=20))  # type: ignore[misc]
            queues = {ours: QueueNodes(zookeeper, ours.api) for ours in waiting}
            await until(lambda: all(len(queue.nodes()) == 2 for queue in queues.values()))
            tokens = {ours: queue.tokens() for ours, queue in queues.items()}
            victim.kill()
            killed = clock.now()
            for ours, each in waiting.items():
                lease = await each
                assert clock.now() - killed < TTL + GRACE
                assert lease.token == tokens[ours][1]
                await ours.do(lease.release)


async def test_killed_waiter_delays_its_successors_by_at_most_its_session_timeout(
    zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    queue = QueueNodes(zookeeper, "job")
    with Child(zookeeper_server.url, ttl=TTL) as victim:
        async with open_clients("sync") as threads, open_clients("async") as tasks:
            holder = await threads.acquire(threads.connect(zookeeper_server.url), "job")
            victim.send("locks.lock('job').acquire(timeout=20)")
            await until(lambda: len(queue.nodes()) == 2)
            waiting = {}
            for ours in (tasks, threads):
                lock = ours.connect(zookeeper_server.url).lock("job")
                waiting[ours] = ours.caller().do(lambda lock=lock: lock.acquire(timeout=20))  # type: ignore[misc]
                await until(lambda: len(queue.nodes()) == 2 + len(waiting))
            _, _, *behind = queue.tokens()
            victim.kill()
            killed = clock.now()
            await threads.do(holder.release)
            for ours, each in waiting.items():
                lease = await each
                assert clock.now() - killed < TTL + GRACE
                assert lease.token == behind.pop(0)
                await ours.do(lease.release)
    assert queue.nodes() == []
