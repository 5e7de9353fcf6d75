"""The sync lock, and redis-py's sync clients that make it."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Literal, Self

import redis as redis_py

from holdfast.client import connect
from holdfast.compat.redis_py.base import BaseLock, MakesLocks, Timeout
from holdfast.compat.redis_py.clients import client_for
from holdfast.compat.redis_py.errors import LockError, is_plain_string, translated
from holdfast.compat.redis_py.leases import Leases
from holdfast.errors import EngineRefused
from holdfast.lease import Lease


class Lock(BaseLock[Lease]):
    """redis-py's ``Lock`` with a holdfast lease inside. Raises redis-py's errors.

    Guaranteed beyond redis-py: a lost reply does not count as "not acquired"; a caller whose lock has expired cannot
    release the next holder's; Ctrl-C leaves no lock behind; a forked child cannot release its parent's lock; waiters
    are woken in the order of a queue. This lock and redis-py's own on the same name (in processes that still use it)
    exclude each other, but waiting is then by polling and in no order.

    Not guaranteed: that the work ends before ``timeout``. Without a timeout the lease is renewed.
    """

    def _connect(self) -> None:
        self._client = client_for(self.redis, connect)
        self._lock = self._client.lock(self._text, **self._policy)
        self._leases = Leases(shared=not self.thread_local, has_ended=lambda thread: False)

    def _caller(self) -> threading.Thread:
        return threading.current_thread()

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """True once the lock is held; False if it is busy and ``blocking`` is False, or ``blocking_timeout`` is over.

        Raises redis-py's ConnectionError if the server cannot be reached, TimeoutError if the outcome is unknown (then
        the lock is withdrawn in the background). ``token`` is refused.
        """
        timeout = self._timeout_for(blocking, blocking_timeout, token)
        pause = self.sleep if sleep is None else sleep
        with translated(self._text):
            lease = None
            while lease is None:
                try:
                    lease = self._lock.try_acquire(timeout=timeout.left)
                    if lease is None:
                        return False
                except EngineRefused as error:
                    if not is_plain_string(error):
                        raise
                    if not self._free_of_redis_py(timeout, pause):
                        return False
        self._keep(lease, self._caller())
        return True

    def _free_of_redis_py(self, timeout: Timeout, pause: float) -> bool:
        """Wait until redis-py's own lock is released; False if the timeout comes first.

        It only inspects: each refused acquire would leave a tombstone on the server for the ttl.
        """
        while timeout.allows(pause):
            time.sleep(pause)
            if self._owners() is not None:
                return True
        return False

    def release(self) -> None:
        """Release the caller's lock. LockError if this caller does not hold it, LockNotOwnedError if it was lost."""
        try:
            lease = self._take(self._caller())
            with translated(self._text):
                lease.release()
        except BaseException:
            self._abandon(self._caller())
            raise

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add ``additional_time`` seconds to the lock's life, or make it at least that long. Never shortens."""
        lease, ttl = self._extended(additional_time, replace_ttl, self._caller())
        with translated(self._text):
            lease.renew(ttl)
        return True

    def reacquire(self) -> Literal[True]:
        """Make the lock's life at least ``timeout`` from now."""
        lease = self._limited("reacquire", self._caller())
        with translated(self._text):
            lease.renew(self.timeout)
        return True

    def locked(self) -> bool:
        """Whether any process holds the lock, according to the server."""
        owners = self._owners()
        return owners is None or bool(owners)

    def owned(self) -> bool:
        """Whether the caller holds the lock, according to its lease and to the server."""
        lease = self.lease
        if lease is None or not lease.held:
            return False
        return lease.owner in (self._owners() or ())

    def _owners(self) -> tuple[str, ...] | None:
        """The owners that hold the lock; None if it is a lock of redis-py itself."""
        with translated(self._text):
            try:
                state = self._client.inspect(self._text)
            except EngineRefused as error:
                if not is_plain_string(error):
                    raise
                return None
        return tuple(holder.owner for holder in state.holders)

    def __enter__(self) -> Self:
        if self.acquire():
            return self
        raise LockError(f"lock {self._text!r} was not acquired within the time specified", lock_name=self._text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.release()
        except LockError as failure:
            self._left(failure, error)
        except BaseException:
            self._abandon(self._caller())  # interrupted before release() began
            raise


class Redis(MakesLocks, redis_py.Redis):
    """redis-py's ``Redis``, except that ``lock()`` makes this package's locks."""

    _lock_class = Lock


class RedisCluster(MakesLocks, redis_py.RedisCluster):
    """redis-py's ``RedisCluster``, except that ``lock()`` makes this package's locks."""

    _lock_class = Lock
