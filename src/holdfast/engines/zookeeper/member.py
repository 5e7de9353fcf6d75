"""A client's part in a hub: what its session and its keeper have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast._runtime.base import Runtime
from holdfast.engines.zookeeper.asking import Asker
from holdfast.engines.zookeeper.hub import Hub
from holdfast.engines.zookeeper.line import Line

#: How long a client that is closed waits for the servers to hear of it; and then for its threads.
_GOODBYE: Final = 0.3
_THREADS: Final = 0.2


class HubMember:
    """``base``: the path above all locks. ``current``: where to find the hub that is in use, if ``hub`` was closed by
    another member."""

    def __init__(self, hub: Hub, runtime: Runtime, base: str, current: Callable[[], Hub] | None = None) -> None:
        self._closed = False
        self._hub = hub
        self._hub.join(id(self))
        self._current = current
        self._runtime = runtime
        self._asker = Asker(hub, runtime)
        self._line = Line(self._asker, base)

    def _reopen(self) -> None:
        """Members of one engine always share a hub: what a session has created, a keeper renews."""
        if self._hub.closed and not self._closed and self._current is not None:
            self._hub = self._asker.hub = self._current()
            self._hub.join(id(self))

    async def close(self) -> None:
        """The other member of this client is closed with it: the core has no more use for either."""
        if self._leave() is None:
            return  # the client was opened anew, on another event loop: what is shared goes on
        connections = self._hub.close()
        if not await self._asker.until_over(connections, self._runtime.now() + _GOODBYE):
            for connection in connections:
                connection.hang_up()
            await self._asker.until_over(connections, self._runtime.now() + _THREADS)

    def _leave(self) -> tuple[int, ...] | None:
        self._closed = True
        return self._hub.leave(id(self))

    def __del__(self) -> None:
        # A client that was not closed, and that held nothing: kazoo's threads would go on for ever.
        if hasattr(self, "_hub") and self._leave() == ():
            self._hub.close()
