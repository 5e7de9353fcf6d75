"""Which lease belongs to which open ``with lock:``. A Lock may be shared, so each caller has its own stack."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar


class _Lease(Protocol):
    @property
    def held(self) -> bool: ...


L = TypeVar("L", bound=_Lease)


class Entered(Generic[L]):
    """The leases of one Lock object whose ``with`` blocks are open.

    No lock: each step is one atomic operation on a list, and a fork finds nothing locked.
    """

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[tuple[Hashable, L]] = []

    def push(self, caller: Hashable, lease: L) -> L:
        self._open.append((caller, lease))
        return lease

    def pop(self, caller: Hashable) -> L:
        """The caller's innermost lease.

        A generator, a fixture or a thread-pool may leave the block elsewhere than it entered it: then it is the one
        lease that is still held, since the lock is exclusive.
        """
        entries = self._open.copy()
        mine = [entry for entry in entries if entry[0] == caller]
        held = [entry for entry in entries if entry[1].held]
        entry = (mine or held or entries)[-1]
        self._open.remove(entry)
        return entry[1]
