"""Condition variables on an event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast._config.durations import Duration, check_timeout
from holdfast.aio import AsyncClient, AsyncLock
from holdfast.primitives.condition import BaseCondition, checked_count, satisfied

T = TypeVar("T")


class AsyncCondition(BaseCondition):
    """A condition variable of a lock. Its waiters may be in any process; it is made by ``client.condition(lock)``."""

    def __init__(self, client: AsyncClient, lock: AsyncLock, name: str) -> None:
        super().__init__(client, lock, name, AsyncLock)
        self._client = client

    async def wait(self, timeout: Duration | None = None) -> bool:
        """Give up the held lock, wait for a notify, and take the lock again. True if notified, False at the timeout.

        All leases of the caller on this lock are not ``held`` meanwhile; afterwards they have a new token. May return
        True though nothing has changed: check again, or use ``wait_for``. The time to come back is not limited by
        ``timeout``. If cancelled, the lock is not taken again: its leases have ended as released.

        Raises NotHeld, LockLost, EngineUnavailable (its leases have ended if the lock had been given up) or
        OutcomeUnknown.
        """
        return await self._wait(self._client._open(), check_timeout(timeout))

    async def wait_for(self, predicate: Callable[[], T], timeout: Duration | None = None) -> T:
        """Wait until ``predicate()`` is true, and return its value; a false one if ``timeout`` has passed."""
        core = self._client._open()
        self._held(core)
        seconds = check_timeout(timeout)
        return await satisfied(core.front.now, predicate, seconds, lambda left: self._wait(core, left))

    async def notify(self, n: int = 1) -> None:
        """Wake ``n`` waiters, if there are so many. The caller must hold the lock, and goes on."""
        await self._notify(self._client._open(), checked_count(n))

    async def notify_all(self) -> None:
        """Wake all waiters. The caller must hold the lock, and goes on."""
        await self._notify(self._client._open(), None)
