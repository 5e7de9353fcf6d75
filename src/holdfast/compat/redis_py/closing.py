"""The hidden AsyncClient of each event loop. It is closed with its loop, since the program cannot close it."""

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
    """One AsyncClient for each event loop, closed with the loop. Its locks with a timeout stay locked."""

    def __init__(self, redis: Any) -> None:
        self.unopened = connect(redis)  #: belongs to no loop; used for calls that do no I/O
        self._opened: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Opened] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()  # loops may start on several threads at the same time

    def on_this_loop(self, redis: Any) -> AsyncClient:
        """The client of the running loop, made from ``redis``, which is not stored here: it must stay collectable."""
        loop = asyncio.get_running_loop()
        opened = self._opened.get(loop)
        if opened is None:
            client = connect(redis)
            opened = _Opened(client, at_loop_end(lambda: self._close(client)))
            with self._lock:
                for ended in [other for other in self._opened if other.is_closed()]:
                    del self._opened[ended]  # its client refers to the loop, which would never be collected
                self._opened[loop] = opened
        return opened.client

    async def _close(self, client: AsyncClient) -> None:
        with self._lock:
            for loop in [loop for loop, opened in self._opened.items() if opened.client is client]:
                del self._opened[loop]  # later calls on this loop get a new client
        outliving.leave_all(client)
        await client.close()
