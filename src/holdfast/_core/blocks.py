"""Which lease belongs to which open ``with lock:``.

A Lock may be shared, and ``with`` gives ``__exit__`` nothing that tells one block from another. But Python looks
``__exit__`` up *before* it calls ``__enter__``, and keeps what it found on the stack of the frame until the block ends.
So ``__exit__`` is looked up as a new object for every block, and that object keeps the block's lease. Any thread, task
or finaliser that ends the block ends this lease and no other; and if a signal interrupts the end, the frame drops the
object, the lease is garbage, and the watchdog releases it.

Where ``__exit__`` is called in another way (``ExitStack``, a wrapper class), the lease is looked up by its caller.
"""

from __future__ import annotations

import logging
import sys
import threading
import weakref
from collections.abc import Callable, Hashable
from types import FrameType
from typing import Any, Final, Generic, Protocol, TypeVar

_log: Final = logging.getLogger("holdfast.lease")


class _Lease(Protocol):
    @property
    def held(self) -> bool: ...


L = TypeVar("L", bound=_Lease)


class BlockExit(Generic[L]):
    """The ``__exit__`` of one ``with`` block: keeps the block's lease, and ends it when called."""

    __slots__ = ("__weakref__", "_end", "_lock", "entering", "lease")

    def __init__(self, lock: Any, end: Callable[..., Any], entering: FrameType) -> None:
        self.lease: L | None = None
        self.entering: FrameType | None = entering  #: the frame of the block, until it is entered
        self._lock = lock
        self._end = end

    def __call__(self, kind: Any, error: Any, traceback: Any) -> Any:
        return self._end(self._lock, kind, error, traceback, lease=self.lease)

    def take(self, lock: object, frame: FrameType) -> bool:
        """Whether it is for the block that ``frame`` enters with ``lock`` now."""
        entering, self.entering = self.entering, None
        return self._lock is lock and entering is frame


class _Lookup(threading.local):
    """The last ``__exit__`` that this thread looked up. Weak: one that was only looked at (``hasattr``) is gone."""

    found: Callable[[], BlockExit[Any] | None] = staticmethod(lambda: None)


_last = _Lookup()


class exit_of_block:  # noqa: N801 -- used as a decorator
    """Makes ``__exit__`` (or ``__aexit__``) of a Lock a new BlockExit for each ``with`` block.

    The function gets the block's lease as ``lease``: None if it was not entered by a ``with`` statement.
    """

    def __init__(self, end: Callable[..., Any]) -> None:
        self._end = end
        self.__doc__ = end.__doc__

    def __get__(self, lock: Any, kind: type) -> Callable[..., Any]:
        if lock is None:
            return self._end
        found: BlockExit[Any] = BlockExit(lock, self._end, sys._getframe(1))
        _last.found = weakref.ref(found)
        return found


class Blocks(Generic[L]):
    """The open blocks of one Lock."""

    __slots__ = ("_others",)

    def __init__(self) -> None:
        # Entered without a ``with`` statement. Each step is one atomic operation, and a fork finds nothing locked.
        self._others: list[tuple[Hashable, L]] = []

    def entered(self, lock: object, frame: FrameType) -> BlockExit[L] | None:
        """The exit of the block that ``frame`` is entering with ``lock``; None if not by a ``with`` statement."""
        found = _last.found()
        return found if found is not None and found.take(lock, frame) else None

    def keep(self, caller: Hashable, lease: L) -> None:
        """``lease``, of a block that was not entered by ``with``, lives until that ends."""
        self._others.append((caller, lease))

    def leave(self, caller: Hashable) -> L | None:
        """The lease of a block that was not entered by ``with``: the caller's innermost one; None if there is none.

        If the caller has none, it is one that another caller entered, as with a stack that is closed by another thread.
        Then a lease that is over is taken first: ending another caller's would let two in. All that are held belong to
        one hold if the lock is exclusive, and it ends with the last of them. Of a read lock or a semaphore, several
        callers may hold some: which of them is meant is unknown, and ending the wrong one would let a writer in.
        """
        entries = self._others.copy()
        own = [entry for entry in entries if entry[0] == caller]
        over = [entry for entry in entries if not entry[1].held]
        choice = own or over or entries
        if not choice:
            return None
        if choice is entries and len({entry[0] for entry in entries}) > 1:
            _log.warning(
                "a block was ended by a caller that holds nothing, while several others do: nothing is released"
            )
            return None
        self._others.remove(choice[-1])
        return choice[-1][1]
