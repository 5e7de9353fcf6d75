"""kill -9 of who holds and of who waits: those behind go on when the dead one's session has ended (invariant I6)."""

from __future__ import annotations

from kazoo.client import KazooClient

from holdfast._runtime import clock
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.child import Child
from tests.support.clients import open_clients
from tests.support.waiting import until
from tests.zookeeper.queue_nodes import QueueNodes

#: The dead one's. It must not end before it is dead, should the machine stand still for a while.
TTL = 2.0
#: Issue 4: within the session's time-out and so much more.
GRACE = 1.0


async def test_a_killed_holder_is_succeeded_when_its_session_has_ended(
    zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    with Child(zookeeper_server.url, ttl=TTL) as victim:
        async with open_clients("sync") as threads, open_clients("async") as tasks:
            waiting = {}
            for ours in (threads, tasks):
                victim.do(f"keep.update({ours.api}_=locks.lock({ours.api!r}).acquire())")
                lock = ours.connect(zookeeper_server.url).lock(ours.api)
                waiting[ours] = ours.caller().do(lambda lock=lock: lock.acquire(timeout=20))  # type: ignore[misc]
            lines = {ours: QueueNodes(zookeeper, ours.api) for ours in waiting}
            await until(lambda: all(len(line.nodes()) == 2 for line in lines.values()))
            tokens = {ours: line.tokens() for ours, line in lines.items()}
            victim.kill()
            killed = clock.now()
            for ours, each in waiting.items():
                lease = await each
                assert clock.now() - killed < TTL + GRACE
                assert lease.token == tokens[ours][1]
                await ours.do(lease.release)


async def test_a_waiter_killed_in_the_middle_of_the_line_costs_those_behind_its_session_at_most(
    zookeeper_server: ZooKeeperServer, zookeeper: KazooClient
) -> None:
    line = QueueNodes(zookeeper, "job")
    with Child(zookeeper_server.url, ttl=TTL) as victim:
        async with open_clients("sync") as threads, open_clients("async") as tasks:
            holder = await threads.acquire(threads.connect(zookeeper_server.url), "job")
            victim.send("locks.lock('job').acquire(timeout=20)")
            await until(lambda: len(line.nodes()) == 2)
            waiting = {}
            for ours in (tasks, threads):
                lock = ours.connect(zookeeper_server.url).lock("job")
                waiting[ours] = ours.caller().do(lambda lock=lock: lock.acquire(timeout=20))  # type: ignore[misc]
                await until(lambda: len(line.nodes()) == 2 + len(waiting))
            _, _, *behind = line.tokens()
            victim.kill()
            killed = clock.now()
            await threads.do(holder.release)
            for ours, each in waiting.items():
                lease = await each
                assert clock.now() - killed < TTL + GRACE
                assert lease.token == behind.pop(0)
                await ours.do(lease.release)
    assert line.nodes() == []
