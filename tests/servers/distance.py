"""A server with latency: data arrives after a delay in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tests.servers.loop_thread import LoopThread
from tests.servers.relay import Address, Passage, Relay


class Distance(Relay):
    """A relay that adds ``seconds`` in each direction."""

    def __init__(self, loop: LoopThread, target: Callable[[], Address], seconds: float) -> None:
        super().__init__(loop, target)
        self.seconds: Final = seconds

    def _passage(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> Passage:
        return _LatePassage(self, client_in, client_out, self.seconds)


class _LatePassage(Passage):
    def __init__(
        self, relay: Relay, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter, seconds: float
    ) -> None:
        super().__init__(relay, client_in, client_out)
        self._seconds = seconds

    async def pass_on(self, data: bytes, sink: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self._seconds)
        await super().pass_on(data, sink)
