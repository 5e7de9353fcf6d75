"""The conditions of a lock, for people: which of its registers have waiters."""

from __future__ import annotations

from kazoo.exceptions import NoNodeError

from holdfast.engines import waiter_queue
from holdfast.engines.base import MOST_WAITERS
from holdfast.engines.zookeeper import register_layout as layout
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.register_layout import RegisterPath
from holdfast.engines.zookeeper.requests import Requester
from holdfast.errors import EngineRefused


class ConditionsReading:
    """Asks for the registers of a lock when it is made: the answer comes with those to the requests that follow. So a
    lock without registers costs no round trip, and another one costs one."""

    def __init__(self, requester: Requester, connection: Connection, base: str, name: str) -> None:
        self._requester = requester
        self._connection = connection
        self._folders = [(folder, requester.reply()) for folder in layout.folders(base, name)]
        for folder, listed in self._folders:
            connection.children(folder, listed.receiver)

    async def conditions(self, timeout: float) -> dict[str, int]:
        """How many waiters each condition has. Of many registers only the first are looked at."""
        try:
            paths = await self._paths(timeout)
            return await self._waiting(paths[:MOST_WAITERS], timeout) if paths else {}
        except EngineRefused:
            return {}  # without the right to read registers, the lock itself is shown

    async def _paths(self, timeout: float) -> list[RegisterPath]:
        paths: list[RegisterPath] = []
        for folder, listed in self._folders:
            try:
                parts = await self._requester.answer(self._connection, listed, timeout)
            except NoNodeError:
                continue
            paths += [RegisterPath(f"{folder}/{part}") for part in sorted(parts)]
        return paths

    async def _waiting(self, paths: list[RegisterPath], timeout: float) -> dict[str, int]:
        """Reads the queues and who is present, by pipelined requests."""
        requester, connection = self._requester, self._connection
        asked = [(requester.reply(), requester.reply()) for _ in paths]
        for path, (queue, waiters) in zip(paths, asked, strict=True):
            connection.get(path.queue, queue.receiver)
            connection.children(path.waiters, waiters.receiver)
        left = await requester.wait_for_last(asked[-1][1], timeout)
        found: list[tuple[str, frozenset[str]]] = []
        for queue, waiters in asked:
            try:
                text, _ = await requester.read(connection, queue, left)
                present = layout.waiters(await requester.answer(connection, waiters, left))
            except NoNodeError:
                continue  # removed in the meantime
            found.append((text.decode("utf-8", "replace"), present))
        return waiter_queue.waiting(found)
