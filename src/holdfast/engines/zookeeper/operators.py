"""Operators' requests: the holders and queues of locks, their names, and breaking one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from kazoo.exceptions import NoNodeError

from holdfast.engines.base import MOST_WAITERS, LockState, Waiter
from holdfast.engines.zookeeper import metadata, names, order
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.requests import Requester


class Operators:
    """``base``: the path above all locks."""

    def __init__(self, requester: Requester, base: str) -> None:
        self._requester = requester
        self._base = base

    async def inspect(self, name: str, timeout: float) -> LockState:
        requester, path = self._requester, names.path(self._base, name)
        connection = await requester.connected(None, timeout)
        while contenders := _contenders(await requester.children(connection, path, timeout)):
            try:
                data, stat = await requester.get(connection, f"{path}/{contenders[0]}", timeout)
            except NoNodeError:
                continue  # released in the meantime
            holder, remaining = metadata.holder(contenders[0], data, stat)
            queue, gone = await self._queue(connection, path, contenders[1 : 1 + MOST_WAITERS], timeout)
            return LockState(name, (holder,), len(contenders) - 1 - gone, stat.czxid, remaining, queue)
        return LockState(name)

    async def _queue(
        self, connection: Connection, path: str, nodes: Sequence[str], timeout: float
    ) -> tuple[tuple[Waiter, ...], int]:
        """The owners of these nodes, read by pipelined requests; and how many of the nodes are gone."""
        requester, replies = self._requester, [self._requester.reply() for _ in nodes]
        for node, reply in zip(nodes, replies, strict=True):
            connection.get(f"{path}/{node}", reply.receiver)
        left = await requester.wait_for_last(replies[-1], timeout) if replies else timeout
        queue: list[Waiter] = []
        for node, reply in zip(nodes, replies, strict=True):
            try:
                data, stat = await requester.read(connection, reply, left)
            except NoNodeError:
                continue
            queue.append(metadata.waiter(node, data, stat))
        return tuple(queue), len(nodes) - len(queue)

    async def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        requester = self._requester
        connection = await requester.connected(None, timeout)
        for node in sorted(await requester.children(connection, self._base or "/", timeout)):
            name = names.decode(node)
            if name is None or not name.startswith(prefix):
                continue
            if _contenders(await requester.children(connection, f"{self._base}/{node}", timeout)):
                yield name

    async def break_(self, name: str, timeout: float, token: int | None = None) -> bool:
        requester, path = self._requester, names.path(self._base, name)
        connection = await requester.connected(None, timeout)
        if token is not None:
            return await self._break_holder(connection, path, timeout, token)
        while contenders := _contenders(await requester.children(connection, path, timeout)):
            if await requester.delete(connection, f"{path}/{contenders[0]}", timeout):
                return True
        return False

    async def _break_holder(self, connection: Connection, path: str, timeout: float, token: int) -> bool:
        """Remove the head of the queue if it was created with ``token``. Its path contains an id (Curator's nodes have
        one too) that no other node has: if the node is gone before the deletion, nothing is deleted."""
        requester = self._requester
        connection.sync(path, requester.reply().receiver)  # a server that lags behind must not show an earlier holder
        while contenders := _contenders(await requester.children(connection, path, timeout)):
            head = f"{path}/{contenders[0]}"
            try:
                _, stat = await requester.get(connection, head, timeout)
            except NoNodeError:
                continue  # released meanwhile
            return bool(stat.czxid == token) and await requester.delete(connection, head, timeout)
        return False

    async def ping(self, timeout: float) -> None:
        connection = await self._requester.connected(None, timeout)
        synced = self._requester.reply()
        connection.sync(self._base or "/", synced.receiver)
        await self._requester.confirm(connection, synced, timeout)


def _contenders(children: Sequence[str]) -> list[str]:
    """The nodes of the queue in order, without foreign nodes."""
    return [child for child in order.ordered(children) if order.sequence_of(child) is not None]
