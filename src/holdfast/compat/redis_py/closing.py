"""Ends the hidden AsyncClient with its event loop: the program has no name for it, and so cannot close it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator
from typing import Any

from holdfast.aio import AsyncClient, connect
from holdfast.compat.redis_py import outliving


class HiddenClient:
    """An AsyncClient that is closed when ``asyncio.run`` ends.

    ``asyncio.run`` closes all async generators in its loop before it closes the loop. The generator here has no other
    purpose. A loop that is closed without ``shutdown_asyncgens()`` leaves a ResourceWarning, as with redis-py.
    """

    def __init__(self, redis: Any) -> None:
        self.client = connect(redis)
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None
        self._closing: AsyncGenerator[None, None] | None = None

    async def close_with_loop(self) -> None:
        """Have the client closed with the running loop."""
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop() is not loop:
            self._loop = weakref.ref(loop)
            self._closing = _close_at_the_end(self.client)
            await anext(self._closing)


async def _close_at_the_end(client: AsyncClient) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        outliving.leave_all(client)
        await client.close()
