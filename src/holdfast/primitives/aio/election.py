"""Elections for asyncio: see :mod:`holdfast.primitives.election`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from holdfast._config.durations import Duration, check_timeout
from holdfast.aio import AsyncClient
from holdfast.async_lease import AsyncLease
from holdfast.engines.base import Holder
from holdfast.primitives.election import BaseElection, Observation


class AsyncElection(BaseElection[AsyncLease]):
    """One of several candidates leads. Creating the object does no I/O; tasks may share it."""

    def __init__(
        self,
        client: AsyncClient,
        name: str,
        value: str | None,
        ttl: Duration,
        on_lost: Callable[[AsyncLease], Any] | None,
    ) -> None:
        super().__init__(client, name, value, ttl, on_lost)
        self._client = client

    async def campaign(self, timeout: Duration | None = None) -> AsyncLease:
        """Wait until this candidate leads, for at most ``timeout`` seconds, and return the lease of its leadership.

        It leads until the lease is released, ``resign`` is called, or the lease is lost. Raises what ``Lock.acquire``
        raises: AcquireTimeout if another one led all the time.
        """
        lease = AsyncLease()
        try:
            return await self._campaign(self._client._open(), lease, check_timeout(timeout))
        except BaseException:
            self._abandon(lease)
            raise

    async def leader(self) -> Holder | None:
        """Who leads, as the engine saw it just now: ``value``, ``host``, ``token``; None if there is no leader."""
        return await self._leader(self._client._open())

    async def observe(self) -> AsyncIterator[Holder | None]:
        """Yield the leader now, and again whenever it is another one; None while there is none. It never ends.

        The engine wakes it when the leader changes, if it can; it also asks once a second at least. It yields the
        latest leader: one that led between two questions is skipped.
        """
        observation = Observation(self)
        try:
            while True:
                yield await observation.following(self._client._open())
        finally:
            observation.close()

    async def resign(self) -> None:
        """Give up the leadership that campaigns of this object have won. Idempotent; quiet if it was lost before."""
        await self._resign()
