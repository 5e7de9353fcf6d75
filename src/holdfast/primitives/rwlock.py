"""A read-write lock: many readers, or one writer. Its two locks are modes of one object at the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from holdfast.client import Lock
from holdfast.lease import NotPortable

if TYPE_CHECKING:
    from holdfast.aio import AsyncLock

L = TypeVar("L", bound="Lock | AsyncLock")


class BaseRWLock(NotPortable, Generic[L]):
    """What RWLock and AsyncRWLock share: everything."""

    def __init__(self, read: L, write: L) -> None:
        self._read = read
        self._write = write

    @property
    def name(self) -> str:
        """Its name, without the namespace."""
        return self._read.name

    @property
    def read(self) -> L:
        """The lock of the readers: held by any number of them at a time, and by none while there is a writer.

        A caller that reads may take it again, also before a writer that waits; a caller that writes may take it, and
        keep it when it releases the write lock (a downgrade: no writer comes in between).
        """
        return self._read

    @property
    def write(self) -> L:
        """The lock of the writer, which excludes readers and other writers.

        A caller that holds the read lock, and not the write lock, gets UsageError: it would wait for itself.
        """
        return self._write

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._read._client!r}>"


class RWLock(BaseRWLock[Lock]):
    """A name and a policy: ``with rwlock.read:`` and ``with rwlock.write:``. Creating one does no I/O.

    Requests are granted in the order in which they came, as far as they exclude each other: arriving readers do not
    starve a writer. A waiter whose process has died keeps the others waiting for at most 2 seconds (on ZooKeeper, for
    the time-out of its session).
    """


class AsyncRWLock(BaseRWLock["AsyncLock"]):
    """A name and a policy: ``async with rwlock.read:`` and ``async with rwlock.write:``. See RWLock."""
