"""Barriers for asyncio: see :mod:`holdfast.primitives.barrier`."""

from __future__ import annotations

from holdfast._config.durations import Duration, check_timeout
from holdfast.aio import AsyncClient
from holdfast.async_lease import AsyncLease
from holdfast.primitives.barrier import BaseBarrier


class AsyncBarrier(BaseBarrier):
    """One member of a double barrier: each task or process that takes part makes its own. No I/O when it is made."""

    def __init__(self, client: AsyncClient, name: str, parties: int) -> None:
        super().__init__(client, name, parties)
        self._client = client

    async def enter(self, timeout: Duration | None = None) -> bool:
        """Wait until all parties have entered: True; False after ``timeout`` seconds, and it is no member then.

        A caller that comes while a round is open waits for the next. Raises LockLost if the membership was lost while
        it waited, UsageError if it has entered already or the members do not agree about their number.
        """
        return await self._enter(self._client._open(), AsyncLease(), check_timeout(timeout))

    async def leave(self, timeout: Duration | None = None) -> bool:
        """Leave, and wait until all members of the round have left or are dead: True; False after ``timeout`` seconds.

        It has left in either case. Raises LockLost if the membership was lost before (the others may have left without
        it), NotHeld if it has not entered.
        """
        return await self._leave(self._client._open(), check_timeout(timeout))
