"""The waiters of one client that are present at registers.

A waiter is present as long as its ephemeral node exists: a killed or frozen process's waiters are absent when its
session ends. A waiter that looks no more while its session continues (cancelled, or its event loop is blocked) is
removed by the session's thread, ``PRESENCE`` after its last look.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from functools import partial

from kazoo.exceptions import ConnectionLoss

from holdfast._runtime.clock import now
from holdfast.engines.registers import PRESENCE
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.register_layout import RegisterPath
from holdfast.engines.zookeeper.reply import Callbacks


class _Presence:
    __slots__ = ("connection", "leaving", "looked", "node", "session")

    def __init__(self, connection: Connection, node: str) -> None:
        self.connection = connection
        self.node = node
        self.session: int | None = None  # the session that has the node, as far as is known
        self.looked = 0.0
        self.leaving = False  # a request to remove the node has been sent


class Presences:
    """Thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()  # re-entrant, as the hub's: the garbage collector may call from within
        self._waiters: dict[RegisterPath, dict[str, _Presence]] = {}
        self._due = float("inf")  # when the next one may have to be removed

    def looked(self, connection: Connection, path: RegisterPath, waiter: str) -> bool:
        """The waiter looks now. True: its node exists. False: the caller sends a request to create it now."""
        with self._mutex:
            presences = self._waiters.setdefault(path, {})
            presence = presences.get(waiter)
            if presence is None:
                presence = presences[waiter] = _Presence(connection, path.waiter(waiter))
            presence.looked = now()
            self._due = min(self._due, presence.looked + PRESENCE)
            exists = presence.session is not None and presence.session == connection.session and not presence.leaving
            if not exists:
                # Requests are executed in order: the node is created after the removal that is under way.
                presence.connection, presence.session, presence.leaving = connection, None, False
            return exists

    def exists(self, connection: Connection, path: RegisterPath, waiter: str) -> None:
        """The waiter's node was created, or found."""
        self._know(path, waiter, connection.session)

    def missing(self, path: RegisterPath, waiter: str) -> None:
        """The waiter's node was not found: it is created with the next look."""
        self._know(path, waiter, None)

    def _know(self, path: RegisterPath, waiter: str, session: int | None) -> None:
        with self._mutex:
            presence = self._waiters.get(path, {}).get(waiter)
            if presence is not None:
                presence.session = session

    def forget(self, path: RegisterPath, waiter: str) -> None:
        """There is no such register, so no node either."""
        with self._mutex:
            self._drop(path, waiter)

    def keep_only(self, path: RegisterPath, waiters: Collection[str]) -> None:
        """Others of this client have left the queue: remove their nodes. Does not wait."""
        with self._mutex:
            for waiter, presence in list(self._waiters.get(path, {}).items()):
                if waiter not in waiters and not presence.leaving:
                    self._remove(path, waiter, presence)

    def sweep(self) -> float:
        """Remove those that have not looked for too long. Called on a session's thread. For how many seconds it need
        not be called again."""
        if not self._waiters:
            return float("inf")
        if (left := self._due - now()) > 0.0:
            return left
        with self._mutex:
            last_look = now() - PRESENCE
            for path, presences in list(self._waiters.items()):
                for waiter, presence in list(presences.items()):
                    if presence.looked <= last_look:
                        self._remove(path, waiter, presence)
            looks = [presence.looked for presences in self._waiters.values() for presence in presences.values()]
            self._due = min(looks, default=float("inf")) + PRESENCE
            return max(0.0, self._due - now())

    def _remove(self, path: RegisterPath, waiter: str, presence: _Presence) -> None:
        presence.leaving, presence.looked = True, now()  # sent again later, if it is not answered
        presence.connection.delete(
            presence.node,
            Callbacks(
                lambda _: self._removed(path, waiter, presence), partial(self._not_removed, path, waiter, presence)
            ),
        )

    def _removed(self, path: RegisterPath, waiter: str, presence: _Presence) -> None:
        with self._mutex:
            if presence.leaving:  # else it has looked again, and its node is created anew
                self._drop(path, waiter)

    def _not_removed(self, path: RegisterPath, waiter: str, presence: _Presence, error: BaseException) -> None:
        if not isinstance(error, ConnectionLoss):  # the node does not exist, or its session has ended
            self._removed(path, waiter, presence)

    def _drop(self, path: RegisterPath, waiter: str) -> None:
        presences = self._waiters.get(path)
        if presences is not None:
            presences.pop(waiter, None)
            if not presences:
                del self._waiters[path]

    def __len__(self) -> int:
        return sum(len(presences) for presences in list(self._waiters.values()))
