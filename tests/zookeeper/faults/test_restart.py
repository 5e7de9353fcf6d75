"""A lone server is killed and comes back with what it has on its disk: the lock is there, and its holder still is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.servers.zookeeper import ZooKeeperServer
from tests.support.clients import Clients, LossReports, open_clients
from tests.support.waiting import until
from tests.zookeeper.queue_nodes import QueueNodes

TTL = 30.0


async def test_holders_and_waiters_go_on_over_a_restart(start_zookeeper: Callable[..., ZooKeeperServer]) -> None:
    server = start_zookeeper()
    async with open_clients("sync") as threads, open_clients("async") as tasks:
        both = [Pair(ours, server) for ours in (threads, tasks)]
        for each in both:
            await each.begin()
        server.kill()
        server.restart()
        for each in both:
            await each.check()


class Pair:
    """One who holds, and one who waits."""

    def __init__(self, ours: Clients, server: ZooKeeperServer) -> None:
        self._ours = ours
        self._name = f"job-{ours.api}"
        self._server = server
        self._locks = ours.connect(server.url, ttl=TTL, unavailable_after=40.0)
        self._told = LossReports()
        self._lease: Any = None
        self._waiting: asyncio.Future[Any]
        self._tokens: list[int] = []

    async def begin(self) -> None:
        line = QueueNodes(self._server.client(), self._name)
        self._lease = await self._ours.acquire(self._locks, self._name, on_lost=self._told)
        self._waiting = self._ours.caller().do(lambda: self._locks.lock(self._name).acquire(timeout=40))
        await until(lambda: len(line.nodes()) == 2)
        self._tokens = line.tokens()

    async def check(self) -> None:
        """Same session, same nodes, same order."""
        await self._ours.do(self._lease.renew)
        assert self._lease.held
        assert self._told.at == []
        assert QueueNodes(self._server.client(), self._name).tokens() == self._tokens
        await self._ours.do(self._lease.release)
        lease = await self._waiting
        assert [self._lease.token, lease.token] == self._tokens
        await self._ours.do(lease.release)
