"""A single server is killed and restarted with its data: the lock and its queue survive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.servers.zookeeper import ZooKeeperServer
from tests.support.clients import Clients, LossReports, open_clients
from tests.support.waiting import until
from tests.zookeeper.queue_nodes import QueueNodes

TTL = 30.0


async def test_holders_and_waiters_survive_a_restart_of_the_server(
    start_zookeeper: Callable[..., ZooKeeperServer],
) -> None:
    server = start_zookeeper()
    async with open_clients("sync") as threads, open_clients("async") as tasks:
        both = [HolderAndWaiter(ours, server) for ours in (threads, tasks)]
        for each in both:
            await each.begin()
        server.kill()
        server.restart()
        for each in both:
            await each.check()


class HolderAndWaiter:
    """A holder and a waiter."""

    def __init__(self, ours: Clients, server: ZooKeeperServer) -> None:
        self._ours = ours
        self._name = f"job-{ours.api}"
        self._server = server
        self._locks = ours.connect(server.url, ttl=TTL, unavailable_after=40.0)
        self._reports = LossReports()
        self._lease: Any = None
        self._waiting: asyncio.Future[Any]
        self._tokens: list[int] = []

    async def begin(self) -> None:
        queue = QueueNodes(self._server.client(), self._name)
        self._lease = await self._ours.acquire(self._locks, self._name, on_lost=self._reports)
        self._waiting = self._ours.caller().do(lambda: self._locks.lock(self._name).acquire(timeout=40))
        await until(lambda: len(queue.nodes()) == 2)
        self._tokens = queue.tokens()

    async def check(self) -> None:
        """Same session, same nodes, same order."""
        await self._ours.do(self._lease.renew)
        assert self._lease.held
        assert self._reports.at == []
        assert QueueNodes(self._server.client(), self._name).tokens() == self._tokens
        await self._ours.do(self._lease.release)
        lease = await self._waiting
        assert [self._lease.token, lease.token] == self._tokens
        await self._ours.do(lease.release)
