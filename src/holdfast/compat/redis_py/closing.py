"""The hidden AsyncClient of each event loop. It ends with its loop: the program has no name for it, and so cannot close
it."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

from holdfast._runtime.loop_end import at_loop_end
from holdfast.aio import AsyncClient, connect
from holdfast.compat.redis_py import outliving


class _Opened(NamedTuple):
    client: AsyncClient
    closing: AsyncGenerator[None, None]


class HiddenClients:
    """For each event loop an AsyncClient, which is closed with it; its locks with a timeout stay locked."""

    def __init__(self, redis: Any) -> None:
        self.unopened = connect(redis)  #: of no loop, for what does no I/O
        self._opened: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Opened] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()  # loops of several threads may begin at once

    def on_this_loop(self, redis: Any) -> AsyncClient:
        """The client of the running loop. ``redis`` is what all of them are made from; it is not kept here, since it
        would never be garbage."""
        loop = asyncio.get_running_loop()
        opened = self._opened.get(loop)
        if opened is None:
            client = connect(redis)
            opened = _Opened(client, at_loop_end(lambda: self._close(client)))
            with self._lock:
                for ended in [other for other in self._opened if other.is_closed()]:
                    del self._opened[ended]  # its client refers to it, so it would never be garbage
                self._opened[loop] = opened
        return opened.client

    async def _close(self, client: AsyncClient) -> None:
        with self._lock:
            for loop in [loop for loop, opened in self._opened.items() if opened.client is client]:
                del self._opened[loop]  # calls that come later on this loop get another client
        outliving.leave_all(client)
        await client.close()
