"""Several locks as one, for asyncio: see :mod:`holdfast.primitives.multi`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Never

from holdfast._config import foreign_keywords
from holdfast._config.durations import Duration, check_timeout
from holdfast.aio import AsyncLock, AsyncLockBlock
from holdfast.async_lease import AsyncLease, AsyncLeaseBlock, AsyncLoss, Body
from holdfast.primitives.multi import (
    BaseMultiLease,
    BaseMultiLock,
    acquire_all,
    release_all,
    renew_all,
    timeout_of_all,
)


class AsyncMultiLease(AsyncLeaseBlock, BaseMultiLease[AsyncLease]):
    """Several held locks. An async context manager: leaving it releases all, and a loss cancels the body, once.

    It is held as long as all locks are, and lost with the first that is lost; the others are renewed until it is
    released. Not guaranteed: that the body stops before its next await.
    """

    __slots__ = ("_bodies",)

    def __init__(self, leases: Mapping[str, AsyncLease]) -> None:
        super().__init__(leases)
        self._bodies: list[Body] = []

    @property
    def lost(self) -> AsyncLoss:
        """The loss as an event: ``is_set()``, ``await wait(timeout)``, ``bool()``."""
        return AsyncLoss(self)

    async def renew(self, ttl: Duration | None = None) -> None:
        """Make all locks valid for at least ``ttl`` seconds from now; later renewals use this ttl. Never shortens."""
        self._check_loop()
        await renew_all(self._all, ttl)

    async def release(self) -> None:
        """Release all locks, the last acquired first. Idempotent; callable from any task.

        If it is cancelled, the release finishes in the background. All are released, also if one was lost. Raises
        LockLost if one was, OutcomeUnknown if an engine could not be reached before its lease expired.
        """
        if self.released:
            return
        self._check_loop()
        try:
            await release_all(self._all)
        finally:
            self._notify()


class AsyncMultiLock(BaseMultiLock[AsyncLock], AsyncLockBlock[AsyncMultiLease]):
    """Several locks that are acquired together. Creating one does no I/O; tasks may share it."""

    def __init__(
        self, locks: Iterable[AsyncLock], timeout: Duration | None, on_lost: Callable[[AsyncMultiLease], Any] | None
    ) -> None:
        BaseMultiLock.__init__(self, locks, AsyncLock)
        AsyncLockBlock.__init__(self, timeout_of_all(self._locks, timeout))
        self._on_lost = on_lost

    async def acquire(self, *, timeout: Duration | None = None, **foreign: Never) -> AsyncMultiLease:
        """Wait for all locks, for at most ``timeout`` seconds in total, and return a lease on all of them.

        If one cannot be acquired, those that were are released, and the error is raised: as for one lock, and LockLost
        if one was lost while later ones were waited for. A lock that the caller holds already is re-entered. If
        cancelled, all claims are withdrawn, even if the event loop is closed.
        """
        if foreign:
            foreign_keywords.refuse_keywords("acquire", foreign, ("timeout",))
        seconds = check_timeout(timeout)
        leases = [AsyncLease() for _ in self._locks]
        parts = [(lock._client._open(), lock._policy) for lock in self._locks]
        await acquire_all(parts, leases, seconds)
        for lease, (_, policy) in zip(leases, parts, strict=True):
            lease._ready(policy.on_lost)
        return AsyncMultiLease(dict(zip(self._labels, leases, strict=True)))._ready(self._on_lost)
