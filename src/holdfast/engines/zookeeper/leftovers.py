"""Nodes that nobody wants any more, and that could not be removed yet.

A node stays as long as its session, and holds up everybody behind it. So one that may have been left behind (its
creation or its removal was never answered) is looked for and removed as soon as there is a connection, however late
that is. All of it happens on kazoo's thread, and nobody waits for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, NoNodeError, SessionExpiredError

from holdfast.engines.zookeeper import order
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.reply import Then, ignore

_log: Final = logging.getLogger("holdfast.zookeeper")

#: The node is, or its session.
_GONE: Final = (NoNodeError, SessionExpiredError, ConnectionClosedError)


class Leftover(NamedTuple):
    connection: Connection
    parent: str
    uuid: str


class Leftovers:
    """Thread-safe. They need not be kept over the end of a session: its nodes are gone then."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()  # as the hub's: the collector may call from within
        self._left: set[Leftover] = set()

    def add(self, connection: Connection, parent: str, uuid: str) -> None:
        """Have the nodes of ``uuid`` removed, now or as soon as ``connection`` is one."""
        left = Leftover(connection, parent, uuid)
        with self._mutex:
            self._left.add(left)
        if connection.connected:
            self._look_for(left)

    def sweep(self, connection: Connection) -> None:
        """There is a connection again, or there never will be one."""
        with self._mutex:
            found = [left for left in tuple(self._left) if left.connection is connection]
            if connection.over:
                self._left.difference_update(found)
                return
        if connection.connected:
            for left in found:
                self._look_for(left)

    def __len__(self) -> int:
        return len(self._left)

    def _look_for(self, left: Leftover) -> None:
        # The requests of a session are carried out in order, and those that were lost with an earlier connection are
        # carried out before the leader has answered: after that the node is there, or never.
        left.connection.sync(left.parent, Then(ignore, ignore))
        left.connection.children(left.parent, Then(lambda nodes: self._remove(left, nodes), self._failed_on(left)))

    def _remove(self, left: Leftover, nodes: list[str]) -> None:
        own = order.find_own(nodes, left.uuid)
        if not own:
            self._forget(left)
        elif left in self._left:
            for node in own:
                left.connection.delete(f"{left.parent}/{node}", Then(ignore, self._failed_on(left)))
            self._look_for(left)  # whatever the answers are, this shows what became of it

    def _failed_on(self, left: Leftover) -> Callable[[BaseException], None]:
        def failed(error: BaseException) -> None:
            if isinstance(error, ConnectionLoss):
                return  # there will be another one
            if not isinstance(error, _GONE):
                _log.warning("could not remove a node under %s: %s", left.parent, type(error).__name__)
            self._forget(left)

        return failed

    def _forget(self, left: Leftover) -> None:
        with self._mutex:
            self._left.discard(left)
