"""Reading a register by pipelined requests."""

from __future__ import annotations

from kazoo.exceptions import NoNodeError

from holdfast.engines.registers import Cell
from holdfast.engines.zookeeper import register_layout as layout
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.register_layout import RegisterPath
from holdfast.engines.zookeeper.requests import Requester


class Reading:
    """Sends the requests at once."""

    def __init__(self, requester: Requester, connection: Connection, path: RegisterPath) -> None:
        self._requester = requester
        self._connection = connection
        self._root, self._value, self._queue, self._waiters = (requester.reply() for _ in range(4))
        connection.stat(path.root, self._root.receiver)
        connection.get(path.value, self._value.receiver)
        connection.get(path.queue, self._queue.receiver)
        connection.children(path.waiters, self._waiters.receiver)

    async def wait(self, until: float) -> None:
        """Wait for the last answer: one wake-up for all."""
        await self._waiters.wait(until)

    async def cell(self, until: float) -> Cell | None:
        """None if the register was changed between the requests. Raises NoNodeError."""
        await self.wait(until)
        requester, connection, left = self._requester, self._connection, max(0.0, until - self._requester.runtime.now())
        root = await requester.answer(connection, self._root, left)
        if root is None:
            raise NoNodeError
        value, value_stat = await requester.read(connection, self._value, left)
        queue, queue_stat = await requester.read(connection, self._queue, left)
        present = layout.waiters(await requester.answer(connection, self._waiters, left))
        # Each change also writes the root: what changed after it belongs to a later version.
        if max(value_stat.mzxid, queue_stat.mzxid) > root.mzxid:
            return None
        return Cell(value, queue.decode(), root.version, present)
