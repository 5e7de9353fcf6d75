"""Removing registers that have not been used for long: those of conditions, latches and barriers, never users' data.

ZooKeeper has no nodes that expire, unless its servers are set up for them. So each client that creates a register looks
at a few others, chosen at random, and removes the old ones: the more there are, the more are found. The servers remove
the nodes above them, which are containers.
"""

from __future__ import annotations

import random
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from holdfast.engines.base import RequestFailed
from holdfast.engines.zookeeper import register_layout as layout
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.register_layout import RegisterPath
from holdfast.engines.zookeeper.requests import Requester
from holdfast.errors import EngineRefused

#: How many registers are looked at. With two, at most about as many old ones remain as others exist.
_SAMPLE: Final = 2


class RegisterRemoval:
    """``unused``: for how many seconds."""

    def __init__(self, requester: Requester, base: str, unused: float) -> None:
        self._requester = requester
        self._base = base
        self._unused = unused

    async def run(self, connection: Connection, created: RegisterPath, until: float) -> None:
        """After the creation of a register. Time is the servers'."""
        try:
            _, stat = await self._children(connection, created.root, until)
            locks, _ = await self._children(connection, layout.folder(self._base), until)
            for lock in random.sample(locks, min(_SAMPLE, len(locks))):
                above = f"{layout.folder(self._base)}/{lock}"
                parts, _ = await self._children(connection, above, until)
                if parts:
                    await self._remove(connection, RegisterPath(f"{above}/{random.choice(parts)}"), stat.ctime, until)
        except (NoNodeError, RequestFailed, EngineRefused):
            pass  # another client's creation will do it

    async def _remove(self, connection: Connection, path: RegisterPath, now: int, until: float) -> None:
        children, stat = await self._children(connection, path.root, until)
        head = layout.head(children, stat.version)
        _, guard = await self._requester.get(connection, path.guard(head.guard), self._left(until))
        if max(stat.mtime, guard.ctime) + self._unused * 1000.0 >= now:
            return
        # Refused if it was used in the meantime: a load replaces the guard, a change raises the version, and a waiter
        # is a node below.
        nodes = (path.guard(head.guard), path.value, path.queue, path.waiters, path.root)
        removed = self._requester.reply()
        connection.multi(
            [connection.check(path.root, head.version), *(connection.removal(node) for node in nodes)],
            removed.receiver,
        )
        await self._requester.outcome(connection, removed, self._left(until))

    async def _children(self, connection: Connection, path: str, until: float) -> tuple[list[str], Any]:
        found = self._requester.reply()
        connection.children_and_stat(path, found.receiver)
        children, stat = await self._requester.answer(connection, found, self._left(until))
        return children, stat

    def _left(self, until: float) -> float:
        return max(0.0, until - self._requester.runtime.now())
