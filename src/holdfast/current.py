"""The lease of the innermost open ``with`` block of this context: ``holdfast.current_lease()``.

A ContextVar keeps the open blocks of a context as a linked list, innermost first. Three rules make it safe:

* References are weak. A context is copied into every task and many threads; a strong reference there would keep a
  forgotten lease, and so its lock, alive.
* ``ContextVar.reset`` is never used: a generator may be closed in another context, where it raises.
* A block that ended in another context stays on the list. Readers skip it; the next block that opens removes it.

Blocks may end in another order than they began, so a block that ends is removed from anywhere on the list. Otherwise
the list would grow without limit in a program that always acquires the next lock before it releases the previous one.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from holdfast.aio import AsyncLease
    from holdfast.lease import AnyLease, Lease
    from holdfast.primitives.aio.multi import AsyncMultiLease
    from holdfast.primitives.multi import MultiLease

#: One open block and those around it: (weak reference to its lease, enclosing blocks).
_Block = tuple["weakref.ref[AnyLease]", Any]

#: Open blocks inside of another one, innermost first.
Inner = Sequence["weakref.ref[AnyLease]"]

_innermost: Final[ContextVar[_Block | None]] = ContextVar("holdfast-current-lease", default=None)


def current_lease() -> Lease | AsyncLease | MultiLease | AsyncMultiLease | None:
    """The lease of the innermost ``with`` block or ``locked`` function around the calling code; None outside of any.

    For reading: ``current_lease().check()``, ``.token`` for a fence (on several locks: ``.tokens``). A released lease
    is skipped; a lost one is returned, so that ``check()`` raises. Tasks and threads that copy the context see the
    lease, too.

    Not guaranteed: that this code holds the lock. The context shows where the code was started, not what it owns.
    """
    block = _unreleased(_innermost.get())
    lease: Any = None if block is None else block[0]()
    return lease  # type: ignore[no-any-return]  # only leases are put on the list


def enter(lease: AnyLease) -> None:
    """A block of ``lease`` begins in this context."""
    block = _innermost.get()
    if block is not None:
        block = _unreleased(block)
    _innermost.set((weakref.ref(lease), block))


def leave(lease: AnyLease) -> None:
    """A block of ``lease`` ends. Does nothing if it began in another context."""
    block = _innermost.get()
    if block is not None and block[0]() is lease:
        _innermost.set(block[1])
    else:
        resume(suspend(lease))  # blocks that began later stay open


def suspend(lease: AnyLease) -> Inner:
    """A generator that holds ``lease`` yields: take its block, and the blocks inside it, off the list.

    Returns the inner blocks, for ``resume``.
    """
    inner: list[weakref.ref[AnyLease]] = []
    block = _innermost.get()
    while block is not None:
        reference, outer = block
        if reference() is lease:
            _innermost.set(outer)
            return inner
        inner.append(reference)
        block = outer
    return ()  # it began in another context


def resume(inner: Inner) -> None:
    """Put the blocks that ``suspend`` took off back on the list, unless they have ended."""
    for reference in reversed(inner):
        lease = reference()
        if lease is not None and not lease.released:
            enter(lease)


def _unreleased(block: _Block | None) -> _Block | None:
    while block is not None:
        lease = block[0]()
        if lease is not None and not lease.released:
            return block
        block = block[1]
    return None
