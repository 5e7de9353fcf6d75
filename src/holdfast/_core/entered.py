"""Which lease belongs to which open ``with lock:``. A Lock may be shared, so each caller has its own stack."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar


class _Lease(Protocol):
    @property
    def held(self) -> bool: ...


L = TypeVar("L", bound=_Lease)


class Entered(Generic[L]):
    """The leases of one Lock object whose ``with`` blocks are open."""

    __slots__ = ("_lock", "_open")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[tuple[Hashable, L]] = []

    def push(self, caller: Hashable, lease: L) -> L:
        with self._lock:
            self._open.append((caller, lease))
        return lease

    def pop(self, caller: Hashable) -> L:
        """The caller's innermost lease.

        A generator, a fixture or a thread-pool may leave the block elsewhere than it entered it: then it is the one
        lease that is still held, since the lock is exclusive.
        """
        with self._lock:
            mine = [place for place, (who, _) in enumerate(self._open) if who == caller]
            held = [place for place, (_, lease) in enumerate(self._open) if lease.held]
            return self._open.pop((mine or held or [len(self._open) - 1])[-1])[1]
