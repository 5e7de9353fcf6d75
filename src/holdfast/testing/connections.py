"""How a proxy stops listening, and ends its connections.

A server of asyncio that is closed while it accepts a connection forgets that connection without closing it (CPython
3.11). It would become garbage in whatever test runs then, and asyncio would complain there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

#: After so many turns of the loop, a connection that was being accepted has its task.
_TURNS: Final = 8


async def stop_listening(listener: asyncio.Server) -> None:
    """Close ``listener``, once the connections that it is accepting at this moment are there."""
    for listening in listener.sockets:
        asyncio.get_running_loop().remove_reader(listening.fileno())
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    listener.close()


async def end_connections(tasks: Callable[[], Collection[asyncio.Task[None]]]) -> None:
    """Cancel the tasks of all connections, and wait until these are closed."""
    while running := list(tasks()):
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    await asyncio.sleep(0)  # transports finish closing in the next turn
