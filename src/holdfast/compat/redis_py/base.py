"""What the sync and the asyncio lock share: everything that does no I/O."""

from __future__ import annotations

import logging
import math
import time
from typing import Any, Final, Generic, TypeVar

from holdfast.compat.redis_py import outliving
from holdfast.compat.redis_py.errors import LockError
from holdfast.compat.redis_py.leases import Leases
from holdfast.errors import UsageError
from holdfast.lease import BaseLease, NotPortable

_log: Final = logging.getLogger("holdfast.compat")

L = TypeVar("L", bound=BaseLease)
Name = str | bytes | bytearray | memoryview | int | float


# Methods that subclasses of redis-py's Lock override to change how the key is written. They do not exist here.
_INTERNALS: Final = (
    *("do_acquire", "do_release", "do_extend", "do_reacquire", "register_scripts"),
    *("lua_release", "lua_extend", "lua_reacquire"),
    *("LUA_RELEASE_SCRIPT", "LUA_EXTEND_SCRIPT", "LUA_REACQUIRE_SCRIPT"),
)


class Local:
    """redis-py's ``lock.local``: its ``token`` is the owner of the caller's lease, or None."""

    def __init__(self, lock: BaseLock[Any]) -> None:
        self._lock = lock

    @property
    def token(self) -> bytes | None:
        lease = self._lock.lease
        return None if lease is None else lease.owner.encode()


class BaseLock(NotPortable, Generic[L]):
    """A lock with the interface of redis-py's. Subclasses add the methods that do I/O."""

    _remedy = "make one from a redis client there"
    _leases: Leases[L]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if without_effect := [name for name in _INTERNALS if hasattr(cls, name)]:
            raise UsageError(
                f"{cls.__qualname__} defines {', '.join(without_effect)}, which redis-py's Lock calls and this one "
                "does not: override acquire(), release(), extend() or reacquire() instead"
            )

    def __init__(
        self,
        redis: Any,
        name: Name,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        """As redis-py's Lock. ``timeout``: the lock's life in seconds, 0.1 s to 7 days, unless it is extended.

        Without one (None) the lock is held until ``release()``, by a lease of 30 s that is renewed: if the process
        dies, the lock is free after that time, while redis-py would keep it for ever. ``sleep`` is used only while
        redis-py itself holds the lock; otherwise waiters are woken. ``thread_local=False``: any thread or task may
        release the lock, not only the one that acquired it.
        """
        self.redis = redis
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self._connect()

    def _connect(self) -> None:
        """Find the holdfast client behind ``redis``, and refuse a wrong name or timeout."""
        raise NotImplementedError

    @property
    def lease(self) -> L | None:
        """The caller's lease, or None. It has ``check()``, ``token`` for a fence, ``on_lost`` and so on."""
        return self._leases.find(self._caller())

    @property
    def local(self) -> Local:
        """redis-py's ``local``, read-only: ``local.token`` is the owner that the server stores."""
        return Local(self)

    def _caller(self) -> object | None:
        raise NotImplementedError

    @property
    def _text(self) -> str:
        """The name as a str. Bytes that are not UTF-8 raise InvalidName in the client."""
        if isinstance(self.name, bytes | bytearray | memoryview):
            return bytes(self.name).decode("utf-8", "surrogateescape")
        # A number, as redis-py sends it. (bytes(5) would be five NUL characters.) The client refuses other types.
        is_number = isinstance(self.name, int | float) and not isinstance(self.name, bool)
        return repr(self.name) if is_number else self.name  # type: ignore[return-value]

    @property
    def _policy(self) -> dict[str, Any]:
        """With a timeout the lock is not renewed; without one it is renewed until its release. Never re-entrant: the
        same thread waits like any other."""
        return {"reentrant": False} if not self.timeout else {"reentrant": False, "ttl": self.timeout, "renew": False}

    def _timeout_for(self, blocking: bool | None, blocking_timeout: float | None, token: object) -> Timeout:
        if token is not None:
            raise UsageError(
                "acquire() has no token= here: each acquire makes an owner of its own, so that a late duplicate of a "
                "request cannot take the lock; read it from lock.local.token",
                name=self._text,
            )
        if not (self.blocking if blocking is None else blocking):
            return Timeout(0.0)
        return Timeout(self.blocking_timeout if blocking_timeout is None else blocking_timeout)

    def _keep(self, lease: L, acquirer: object | None) -> None:
        try:
            self._leases.add(lease, acquirer)
            if self.timeout:
                outliving.keep(lease)
        except BaseException:
            self._abandon(acquirer)
            raise

    def _abandon(self, acquirer: object | None) -> None:
        """Drop the caller's lease after a signal interrupted an acquire or a release: the caller will not release it.
        The watchdog releases a lease that nothing refers to. Leases of other callers are kept."""
        lease = self._leases.own(acquirer)
        if lease is not None:
            outliving.discard(lease)
            self._leases.remove(lease)

    def _take(self, caller: object | None) -> L:
        """The lease to release."""
        lease = self._leases.find(caller)
        if lease is None:
            raise LockError(f"lock {self._text!r} is not held by this caller, or is released", lock_name=self._text)
        outliving.discard(lease)
        self._leases.remove(lease)
        return lease

    def _extended(self, additional_time: float, replace_ttl: bool, caller: object | None) -> tuple[L, float]:
        lease = self._limited("extend", caller)
        return lease, additional_time if replace_ttl else lease.remaining + additional_time

    def _limited(self, operation: str, caller: object | None) -> L:
        """The caller's lease on a lock with a timeout; LockError if there is none."""
        lease = self._leases.find(caller)
        if lease is None:
            raise LockError(
                f"cannot {operation} lock {self._text!r}: this caller does not hold it", lock_name=self._text
            )
        if self.timeout is None:
            raise LockError(
                f"cannot {operation} lock {self._text!r}: it has no timeout, and is renewed until it is released",
                lock_name=self._text,
            )
        return lease

    def _left(self, failure: LockError, body: BaseException | None) -> None:
        """The block has ended, and the release failed. The body's own exception takes precedence."""
        if body is not None:
            body.add_note(str(failure))
        elif self.raise_on_release_error:
            raise failure
        else:
            _log.warning("lock %r was released or lost before its block ended: %s", self._text, failure)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__} {self._text!r} timeout={self.timeout}>"


class Timeout:
    """How long an ``acquire`` may take. ``seconds`` None: for ever; 0 or less: one try."""

    def __init__(self, seconds: float | None) -> None:
        self._until = None if seconds in (None, math.inf) else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def allows(self, pause: float) -> bool:
        """Whether there is time for a pause and another attempt."""
        return self._until is None or time.monotonic() + pause <= self._until


class MakesLocks:
    """Mixed into a client class of redis-py: its ``lock()`` makes locks of ``_lock_class``."""

    _lock_class: type[BaseLock[Any]]

    def lock(self, *args: Any, **keywords: Any) -> Any:
        """As redis-py's, with this package's Lock as ``lock_class`` unless one is given."""
        if keywords.get("lock_class") is None:
            keywords["lock_class"] = self._lock_class
        return super().lock(*args, **keywords)  # type: ignore[misc]  # of redis-py's client
