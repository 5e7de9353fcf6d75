"""Latches for asyncio: see :mod:`holdfast.primitives.latch`."""

from __future__ import annotations

from holdfast._config.durations import Duration, check_timeout
from holdfast.aio import AsyncClient
from holdfast.primitives.latch import BaseLatch


class AsyncLatch(BaseLatch):
    """Callers wait until it was counted down to zero. Creating the object does no I/O; tasks may share it."""

    def __init__(self, client: AsyncClient, name: str, count: int | None) -> None:
        super().__init__(client, name, count)
        self._client = client

    async def count_down(self) -> None:
        """Count down by one; at zero the latch opens. Without effect on an open latch.

        It takes effect exactly once, also if a reply is lost. Raises EngineUnavailable, OutcomeUnknown if it is not
        known whether it took effect, UsageError if the latch does not exist and this object has no count.
        """
        await self._count_down(self._client._open())

    async def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until the latch opens: True; False after ``timeout`` seconds. An open latch stays open: True at once.

        A reset after the opening does not hold back callers that waited before.
        """
        return await self._wait(self._client._open(), check_timeout(timeout))

    async def count(self) -> int | None:
        """How often it is still to be counted down; 0 if it is open, None if it does not exist."""
        return await self._count(self._client._open())

    async def reset(self) -> None:
        """Close the latch again, with its whole count. Callers that wait for a round that is not over go on waiting."""
        await self._reset(self._client._open())
