"""The asyncio lock, and redis-py's asyncio clients that make it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Literal, Self

import redis.asyncio as redis_py

from holdfast.aio import AsyncClient, AsyncLease, AsyncLock
from holdfast.compat.redis_py.base import BaseLock, MakesLocks, Timeout
from holdfast.compat.redis_py.clients import client_for
from holdfast.compat.redis_py.closing import HiddenClients
from holdfast.compat.redis_py.errors import LockError, is_plain_string, translated
from holdfast.compat.redis_py.leases import Leases
from holdfast.errors import EngineRefused

__all__ = ["Lock", "Redis", "RedisCluster"]


class Lock(BaseLock[AsyncLease]):
    """redis-py's ``asyncio.Lock`` with a holdfast lease inside. Raises redis-py's errors.

    Guaranteed beyond redis-py: what the sync Lock guarantees; tasks may share it (``release()`` releases the lease of
    its own task, or one whose task has ended); a cancelled acquire or release leaves no lock behind.

    Not guaranteed: that the body stops when the lock is lost. ``lock.lease.on_lost`` reports the loss.
    """

    def _connect(self) -> None:
        self._hidden = client_for(self.redis, HiddenClients)
        self._lock_of(self._hidden.unopened)  # refuses wrong names and timeouts here
        self._leases = Leases(shared=not self.thread_local, has_ended=_has_ended)

    def _lock_of(self, client: AsyncClient) -> AsyncLock:
        return client.lock(self._text, **self._policy)

    def _caller(self) -> asyncio.Task[Any] | None:
        try:
            return asyncio.current_task()
        except RuntimeError:
            return None  # outside of a loop: run_until_complete(lock.acquire())

    def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> Coroutine[Any, Any, bool]:
        """True once the lock is held; False if it is busy and ``blocking`` is False, or ``blocking_timeout`` is over.

        Raises redis-py's ConnectionError if the server cannot be reached, TimeoutError if the outcome is unknown (then
        the lock is withdrawn in the background). ``token`` is refused. The lock belongs to the task that calls this,
        even if another task awaits it: ``await wait_for(lock.acquire(), 5)``.
        """
        return self._acquire(self._timeout_for(blocking, blocking_timeout, token), self._caller())

    async def _acquire(self, timeout: Timeout, acquirer: asyncio.Task[Any] | None) -> bool:
        lock = self._lock_of(self._hidden.on_this_loop(self.redis))
        with translated(self._text):
            lease = None
            while lease is None:
                try:
                    lease = await lock.try_acquire(timeout=timeout.left)
                    if lease is None:
                        return False
                except EngineRefused as error:
                    if not is_plain_string(error):
                        raise
                    if not await self._free_of_redis_py(timeout):
                        return False
        self._keep(lease, acquirer)
        return True

    async def _free_of_redis_py(self, timeout: Timeout) -> bool:
        """Wait until redis-py's own lock is released; False if the timeout comes first.

        It only inspects: each refused acquire would leave a tombstone on the server for the ttl.
        """
        while timeout.allows(self.sleep):
            await asyncio.sleep(self.sleep)
            if await self._owners() is not None:
                return True
        return False

    # Each of these is a plain function that determines the caller before it returns a coroutine:
    # "await wait_for(lock.release(), 5)" and "await shield(lock.release())" run the coroutine in another task.

    def release(self) -> Coroutine[Any, Any, None]:
        """Release the caller's lock. LockError if this caller does not hold it, LockNotOwnedError if it was lost."""
        return self._release(self._caller())

    async def _release(self, caller: asyncio.Task[Any] | None) -> None:
        try:
            lease = self._take(caller)
            with translated(self._text):
                await lease.release()
        except BaseException:
            self._abandon(caller)
            raise

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Coroutine[Any, Any, Literal[True]]:
        """Add ``additional_time`` seconds to the lock's life, or make it at least that long. Never shortens."""
        return self._extend(additional_time, replace_ttl, self._caller())

    async def _extend(
        self, additional_time: float, replace_ttl: bool, caller: asyncio.Task[Any] | None
    ) -> Literal[True]:
        lease, ttl = self._extended(additional_time, replace_ttl, caller)
        with translated(self._text):
            await lease.renew(ttl)
        return True

    def reacquire(self) -> Coroutine[Any, Any, Literal[True]]:
        """Make the lock's life at least ``timeout`` from now."""
        return self._reacquire(self._caller())

    async def _reacquire(self, caller: asyncio.Task[Any] | None) -> Literal[True]:
        lease = self._limited("reacquire", caller)
        with translated(self._text):
            await lease.renew(self.timeout)
        return True

    async def locked(self) -> bool:
        """Whether any process holds the lock, according to the server."""
        owners = await self._owners()
        return owners is None or bool(owners)

    def owned(self) -> Coroutine[Any, Any, bool]:
        """Whether the caller holds the lock, according to its lease and to the server."""
        return self._owned(self.lease)

    async def _owned(self, lease: AsyncLease | None) -> bool:
        if lease is None or not lease.held:
            return False
        return lease.owner in (await self._owners() or ())

    async def _owners(self) -> tuple[str, ...] | None:
        """The owners that hold the lock; None if it is a lock of redis-py itself."""
        client = self._hidden.on_this_loop(self.redis)
        with translated(self._text):
            try:
                state = await client.inspect(self._text)
            except EngineRefused as error:
                if not is_plain_string(error):
                    raise
                return None
        return tuple(holder.owner for holder in state.holders)

    async def __aenter__(self) -> Self:
        if await self.acquire():
            return self
        raise LockError(f"lock {self._text!r} was not acquired within the time specified", lock_name=self._text)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except LockError as failure:
            self._left(failure, error)
        except BaseException:
            self._abandon(self._caller())  # interrupted before release() began
            raise


def _has_ended(task: asyncio.Task[Any] | None) -> bool:
    return task is None or task.done()


class Redis(MakesLocks, redis_py.Redis):  # type: ignore[misc]  # redis-py's own bases disagree
    """redis-py's asyncio ``Redis``, except that ``lock()`` makes this module's locks."""

    _lock_class = Lock


class RedisCluster(MakesLocks, redis_py.RedisCluster):  # type: ignore[misc]  # as above
    """redis-py's asyncio ``RedisCluster``, except that ``lock()`` makes this module's locks."""

    _lock_class = Lock
