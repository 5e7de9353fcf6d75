"""The common base of a client's session and keeper: both use one hub."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast._runtime.base import Runtime
from holdfast.engines.zookeeper.hub import Hub
from holdfast.engines.zookeeper.queue import LockQueue
from holdfast.engines.zookeeper.requests import Requester

#: How long ``close`` waits for the servers to end the sessions, and then for the threads.
_CLOSE_WITHIN: Final = 0.3
_THREADS: Final = 0.2


class HubMember:
    """``base``: the path above all locks. ``current``: returns the hub in use, if another member has closed ``hub``."""

    def __init__(self, hub: Hub, runtime: Runtime, base: str, current: Callable[[], Hub] | None = None) -> None:
        self._closed = False
        self._hub = hub
        self._hub.join(id(self))
        self._current = current
        self._runtime = runtime
        self._requester = Requester(hub, runtime)
        self._queue = LockQueue(self._requester, base)

    def _reopen(self) -> None:
        """Members of one engine always share a hub: a keeper renews what a session has created."""
        if self._hub.closed and not self._closed and self._current is not None:
            self._hub = self._requester.hub = self._current()
            self._hub.join(id(self))

    async def close(self) -> None:
        """Closes the hub for the other member of this client too: the core does not use either any more."""
        if self._leave() is None:
            return  # the client was opened again, on another event loop, and uses the hub
        connections = self._hub.close()
        if not await self._requester.wait_until_ended(connections, self._runtime.now() + _CLOSE_WITHIN):
            for connection in connections:
                connection.break_connection()
            await self._requester.wait_until_ended(connections, self._runtime.now() + _THREADS)

    def _leave(self) -> tuple[int, ...] | None:
        self._closed = True
        return self._hub.leave(id(self))

    def __del__(self) -> None:
        # For a client that was not closed and held nothing: kazoo's threads would run forever.
        if hasattr(self, "_hub") and self._leave() == ():
            self._hub.close()
