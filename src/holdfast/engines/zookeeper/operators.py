"""What people ask of ZooKeeper's locks: who holds what, take it away from him."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from kazoo.exceptions import NoNodeError

from holdfast.engines.base import LockState
from holdfast.engines.zookeeper import metadata, names, order
from holdfast.engines.zookeeper.asking import Asker


class Operators:
    """``base``: the path above all locks."""

    def __init__(self, asker: Asker, base: str) -> None:
        self._asker = asker
        self._base = base

    async def inspect(self, name: str, timeout: float) -> LockState:
        asker, path = self._asker, names.path(self._base, name)
        connection = await asker.connected(None, timeout)
        while contenders := _contenders(await asker.children(connection, path, timeout)):
            try:
                data, stat = await asker.get(connection, f"{path}/{contenders[0]}", timeout)
            except NoNodeError:
                continue  # released meanwhile
            holder, remaining = metadata.holder(contenders[0], data, stat)
            return LockState(name, (holder,), len(contenders) - 1, stat.czxid, remaining)
        return LockState(name)

    async def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        asker = self._asker
        connection = await asker.connected(None, timeout)
        for node in sorted(await asker.children(connection, self._base or "/", timeout)):
            name = names.decode(node)
            if name is None or not name.startswith(prefix):
                continue
            if _contenders(await asker.children(connection, f"{self._base}/{node}", timeout)):
                yield name

    async def break_(self, name: str, timeout: float) -> bool:
        asker, path = self._asker, names.path(self._base, name)
        connection = await asker.connected(None, timeout)
        while contenders := _contenders(await asker.children(connection, path, timeout)):
            if await asker.delete(connection, f"{path}/{contenders[0]}", timeout):
                return True
        return False

    async def ping(self, timeout: float) -> None:
        connection = await self._asker.connected(None, timeout)
        synced = self._asker.reply()
        connection.sync(self._base or "/", synced.address)
        await self._asker.confirm(connection, synced, timeout)


def _contenders(children: Sequence[str]) -> list[str]:
    """Those in line; not what others may have put there."""
    return [child for child in order.ordered(children) if order.sequence_of(child) is not None]
