"""Which lease a ``release()`` refers to.

redis-py keeps one token for each thread, or one for all threads. If callers share a token, as the tasks of a thread do,
a caller whose lock has expired releases the lock of the next holder. Here each lease is stored with the thread or task
that acquired it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from holdfast.lease import BaseLease

L = TypeVar("L", bound=BaseLease)


class _Kept(NamedTuple, Generic[L]):
    lease: L
    acquirer: weakref.ref[Any] | None  # None: it was acquired outside of any task

    def is_of(self, caller: object | None) -> bool:
        return caller is None if self.acquirer is None else self.acquirer() is caller

    @property
    def is_forgotten(self) -> bool:
        """Whether the lease has expired and its thread or task is garbage, so that no caller can release it."""
        return self.acquirer is not None and self.acquirer() is None and not self.lease.held


class Leases(Generic[L]):
    """The unreleased leases of one Lock object. ``shared``: any caller may release any of them."""

    def __init__(self, *, shared: bool, has_ended: Callable[[Any], bool]) -> None:
        self._shared = shared
        self._has_ended = has_ended
        self._kept: list[_Kept[L]] = []
        self._lock = threading.RLock()  # re-entrant: a signal handler may use the Lock object as well

    def add(self, lease: L, acquirer: object | None) -> None:
        """Store ``lease``. It replaces an earlier lease of the same acquirer, which must have expired.

        Forgotten leases are removed: a program may leave locks to their timeouts, with one Lock object and a new task
        each time.
        """
        kept = _Kept(lease, None if acquirer is None else weakref.ref(acquirer))
        with self._lock:
            others = [other for other in self._kept if not other.is_of(acquirer) and not other.is_forgotten]
            self._kept = [*others, kept]

    def find(self, caller: object | None) -> L | None:
        """The lease that ``caller`` may release: its own, else one that was handed over, else None.

        A lease is handed over if its acquirer has ended, or if leases are ``shared``.
        """
        with self._lock:
            own = [kept for kept in self._kept if kept.is_of(caller)]
            others = [kept for kept in self._kept if self._shared or self._is_left(kept)]
        found = (own or others)[-1:]
        return found[0].lease if found else None

    def own(self, caller: object | None) -> L | None:
        """The lease that ``caller`` itself acquired, or None."""
        with self._lock:
            return next((kept.lease for kept in self._kept if kept.is_of(caller)), None)

    def remove(self, lease: L) -> None:
        with self._lock:
            self._kept = [kept for kept in self._kept if kept.lease is not lease]

    def _is_left(self, kept: _Kept[L]) -> bool:
        acquirer = None if kept.acquirer is None else kept.acquirer()
        return self._has_ended(acquirer)
