"""Operators' requests: the holders and queues of locks, their names, and breaking one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from kazoo.exceptions import NoNodeError

from holdfast.engines.base import MOST_WAITERS, Holder, Kind, LockState, Waiter
from holdfast.engines.zookeeper import layout, metadata, names, order, permits
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.permits import StoredSize
from holdfast.engines.zookeeper.register_inspection import ConditionsReading
from holdfast.engines.zookeeper.requests import Requester


class Nodes(NamedTuple):
    """The nodes of one object, without foreign ones. ``holding``: paths, those of one claim together. ``waiting``:
    paths, in order. ``size``: of a semaphore, how many permits it has; None: it is not stored."""

    kind: Kind = Kind.LOCK
    holding: Sequence[Sequence[str]] = ()
    waiting: Sequence[str] = ()
    size: int | None = None

    @property
    def free(self) -> int | None:
        return None if self.size is None else max(0, self.size - sum(map(len, self.holding)))


class Operators:
    """``base``: the path above all locks."""

    def __init__(self, requester: Requester, base: str) -> None:
        self._requester = requester
        self._base = base

    async def inspect(self, name: str, timeout: float) -> LockState:
        path = names.path(self._base, name)
        connection = await self._requester.connected(None, timeout)
        registers = ConditionsReading(self._requester, connection, self._base, name)
        while True:
            nodes = await self._nodes(connection, path, timeout)
            holders, remaining = await self._holders(connection, nodes, timeout)
            if holders or not nodes.holding:
                break  # else all of them were released in the meantime
        waiting = nodes.waiting[:MOST_WAITERS]
        queue: list[Waiter] = []
        for each, data, stat in await self._read(connection, waiting, timeout):
            node = each.rpartition("/")[2]
            mode = layout.label(node, nodes.kind)
            queue.append(metadata.waiter(node, data, stat, mode, candidate=nodes.kind is Kind.ELECTION))
        return LockState(
            name,
            tuple(holders),
            len(nodes.waiting) - len(waiting) + len(queue),
            max((holder.token or 0 for holder in holders), default=None),
            remaining,
            tuple(queue),
            nodes.kind.value,
            nodes.size,
            nodes.free,
            await registers.conditions(timeout),
        )

    async def _holders(self, connection: Connection, nodes: Nodes, timeout: float) -> tuple[list[Holder], float | None]:
        """The holders; and for how long the last of them may still hold, if that is known of all."""
        counts = {group[0]: len(group) for group in nodes.holding}
        holders, remaining = [], []
        for path, data, stat in await self._read(connection, list(counts), timeout):
            node = path.rpartition("/")[2]
            holder, left = metadata.holder(
                node,
                data,
                stat,
                layout.label(node, nodes.kind),
                counts[path],
                candidate=nodes.kind is Kind.ELECTION,
            )
            holders.append(holder)
            remaining.append(left)
        known = [left for left in remaining if left is not None]
        return holders, max(known) if known and len(known) == len(remaining) else None

    async def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        requester = self._requester
        connection = await requester.connected(None, timeout)
        for node in sorted(await requester.children(connection, self._base or "/", timeout)):
            name = names.decode(node)
            if name is None or not name.startswith(prefix):
                continue
            if (await self._nodes(connection, f"{self._base}/{node}", timeout)).holding:
                yield name

    async def break_(self, name: str, timeout: float, token: int | None = None) -> bool:
        """Remove the nodes of the holders. A node's name contains an id (Curator's nodes have one too) that no other
        node has: if it is gone before the deletion, nothing is deleted."""
        requester, path = self._requester, names.path(self._base, name)
        connection = await requester.connected(None, timeout)
        connection.sync(path, requester.reply().receiver)  # a server that lags behind must not show earlier holders
        while holding := (await self._nodes(connection, path, timeout)).holding:
            broken = [each for group in holding for each in group]
            if token is not None:
                read = await self._read(connection, [group[0] for group in holding], timeout)
                having = {each for each, data, stat in read if metadata.token(data, stat) == token}
                broken = [each for group in holding if group[0] in having for each in group]
                if read and not broken:
                    return False
            if broken and await requester.delete_all(connection, broken, timeout):
                return True
        return False

    async def _nodes(self, connection: Connection, path: str, timeout: float) -> Nodes:
        requester = self._requester
        children = await requester.children(connection, path, timeout)
        kind = layout.kind_of(children) or Kind.LOCK
        if kind is Kind.BARRIER:
            return Nodes(kind, [[f"{path}/{node}"] for node in sorted(layout.members(children))])
        if kind is not Kind.SEMAPHORE:
            holding, waiting = order.divided(_contenders(children, kind), layout.markers(kind))
            return Nodes(kind, [[f"{path}/{node}"] for node in holding], [f"{path}/{node}" for node in waiting])
        leases, queue = layout.leases(path), layout.queue(path, kind)
        groups = permits.grouped(await requester.children(connection, leases, timeout)).values()
        held = [[f"{leases}/{node}" for node in group] for group in groups]
        queued = _contenders(await requester.children(connection, queue, timeout), kind)
        waiting = [f"{queue}/{node}" for node in queued]
        try:
            size = StoredSize.of(layout.size(path), *await requester.get(connection, layout.size(path), timeout))
        except NoNodeError:
            return Nodes(kind, held, waiting)
        return Nodes(kind, held, waiting, size.number)

    async def _read(self, connection: Connection, paths: Sequence[str], timeout: float) -> list[tuple[str, bytes, Any]]:
        """Path, data and stat of nodes, read by pipelined requests; without those that are gone."""
        requester, replies = self._requester, [self._requester.reply() for _ in paths]
        for path, reply in zip(paths, replies, strict=True):
            connection.get(path, reply.receiver)
        left = await requester.wait_for_last(replies[-1], timeout) if replies else timeout
        found = []
        for path, reply in zip(paths, replies, strict=True):
            try:
                found.append((path, *await requester.read(connection, reply, left)))
            except NoNodeError:
                continue
        return found

    async def ping(self, timeout: float) -> None:
        connection = await self._requester.connected(None, timeout)
        synced = self._requester.reply()
        connection.sync(self._base or "/", synced.receiver)
        await self._requester.confirm(connection, synced, timeout)


def _contenders(children: Sequence[str], kind: Kind) -> list[str]:
    """The nodes of a queue in order, without foreign nodes."""
    markers = layout.markers(kind)
    return [child for child in order.ordered(children, markers) if order.sequence_of(child, markers) is not None]
