"""Nodes that are no longer needed and could not be removed yet.

A node exists as long as its session and blocks every waiter behind it. So a node that may have been left behind (its
creation or its removal was never answered) is looked up and removed as soon as there is a connection, however late that
is. This happens on kazoo's thread; no caller waits for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, NoNodeError, SessionExpiredError

from holdfast.engines.zookeeper import order
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.reply import Callbacks, ignore

_log: Final = logging.getLogger("holdfast.zookeeper")

#: The node or its session does not exist any more.
_GONE: Final = (NoNodeError, SessionExpiredError, ConnectionClosedError)


class Leftover(NamedTuple):
    connection: Connection
    parent: str
    uuid: str


class Leftovers:
    """Thread-safe. Entries are dropped at the end of their session, which removes its nodes."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()  # re-entrant, as the hub's: the garbage collector may call from within
        self._left: set[Leftover] = set()

    def add(self, connection: Connection, parent: str, uuid: str) -> None:
        """Remove the nodes of ``uuid``, now or as soon as ``connection`` is connected."""
        left = Leftover(connection, parent, uuid)
        with self._mutex:
            self._left.add(left)
        if connection.connected:
            self._look_for(left)

    def sweep(self, connection: Connection) -> None:
        """Called when ``connection`` is connected again, or has ended."""
        with self._mutex:
            found = [left for left in tuple(self._left) if left.connection is connection]
            if connection.ended:
                self._left.difference_update(found)
                return
        if connection.connected:
            for left in found:
                self._look_for(left)

    def __len__(self) -> int:
        return len(self._left)

    def _look_for(self, left: Leftover) -> None:
        # The servers execute a session's requests in order, and requests from an earlier connection before the leader
        # answers this one. After that answer the node exists, or never will.
        left.connection.sync(left.parent, Callbacks(ignore, ignore))
        left.connection.children(left.parent, Callbacks(lambda nodes: self._remove(left, nodes), self._failed_on(left)))

    def _remove(self, left: Leftover, nodes: list[str]) -> None:
        own = order.find_own(nodes, left.uuid)
        if not own:
            self._forget(left)
        elif left in self._left:
            for node in own:
                left.connection.delete(f"{left.parent}/{node}", Callbacks(ignore, self._failed_on(left)))
            self._look_for(left)  # shows the result, whatever the answers are

    def _failed_on(self, left: Leftover) -> Callable[[BaseException], None]:
        def failed(error: BaseException) -> None:
            if isinstance(error, ConnectionLoss):
                return  # retried at the next connection
            if not isinstance(error, _GONE):
                _log.warning("could not remove a node under %s: %s", left.parent, type(error).__name__)
            self._forget(left)

        return failed

    def _forget(self, left: Leftover) -> None:
        with self._mutex:
            self._left.discard(left)
