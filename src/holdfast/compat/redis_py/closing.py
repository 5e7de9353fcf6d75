"""Ends the hidden AsyncClient with its event loop: the program has no name for it, and so cannot close it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator
from typing import Any

from holdfast._runtime.loop_end import at_loop_end
from holdfast.aio import AsyncClient, connect
from holdfast.compat.redis_py import outliving


class HiddenClient:
    """An AsyncClient that is closed when ``asyncio.run`` ends; its locks with a timeout stay locked until then."""

    def __init__(self, redis: Any) -> None:
        self.client = connect(redis)
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None
        self._closing: AsyncGenerator[None, None] | None = None

    def close_with_loop(self) -> None:
        """Have the client closed with the running loop."""
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop() is not loop:
            self._loop = weakref.ref(loop)
            client = self.client
            self._closing = at_loop_end(lambda: _close(client))


async def _close(client: AsyncClient) -> None:
    outliving.leave_all(client)
    await client.close()
