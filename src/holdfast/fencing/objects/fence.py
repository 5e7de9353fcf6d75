"""The fence on the program's own obstore store: a sync and an async API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._runtime.blocking import run
from holdfast.fencing.objects.head import validate
from holdfast.fencing.objects.port import Port
from holdfast.fencing.objects.register import Register
from holdfast.fencing.rule import Lease, bearer

if TYPE_CHECKING:
    from obstore.store import ObjectStore

Data = bytes | bytearray | memoryview


class ObjectFence:
    """A fence for values in an object store: S3, GCS, Azure, through obstore.

    ``<key>/head`` is a small object with the newest token, its owner, and the name of the object that has the value.
    Values are never overwritten: each store writes a new object and then moves the head, conditionally. Give the fence
    its own prefix of the bucket; other programs read with :meth:`read`.

    Guarantee: :meth:`load` raises the head before it reads; from then on a store with an older token, or an equal one
    of another owner, raises :class:`holdfast.StaleToken` and does not change the value. A store is atomic.

    Not guaranteed: anything, if other programs or lifecycle rules write or delete objects under the key, or if the
    store ignores conditional writes; :meth:`verify` tests that. If two threads store under one lease at the same time,
    the last one wins. ``EngineUnavailable``: nothing was stored. ``OutcomeUnknown``: the store did not answer, and the
    write may take effect now or later. How long a request is repeated is set in the store (``retry_config``, by default
    minutes).
    """

    def __init__(self, store: ObjectStore) -> None:
        self._register = Register(Port(store, awaited=False))

    def check(self, key: str, token: int | Lease, owner: str | None = None) -> None:
        """Raise the head, read no value. Raises :class:`holdfast.StaleToken`."""
        run(self._register.raise_guard(validate(key), bearer(token, owner, fence=type(self).__name__)))

    def load(self, key: str, token: int | Lease, owner: str | None = None) -> bytes | None:
        """Raise the head, then read the value. None: there is none. Call it before anything else is read."""
        return run(self._register.load(validate(key), bearer(token, owner, fence=type(self).__name__)))

    def store(self, key: str, data: Data, token: int | Lease, owner: str | None = None) -> None:
        """Replace the value. The same lease must have called :meth:`load` or :meth:`check` before, else UsageError."""
        run(self._register.store(validate(key), _checked(data), bearer(token, owner, fence=type(self).__name__)))

    def delete(self, key: str, token: int | Lease, owner: str | None = None) -> None:
        """Remove the value, as :meth:`store` replaces it. The head stays: it is the guard."""
        run(self._register.store(validate(key), None, bearer(token, owner, fence=type(self).__name__)))

    def read(self, key: str) -> bytes | None:
        """The value, for a reader without a lease: some value that counted during the call."""
        return run(self._register.read(validate(key)))

    def sweep(self, key: str) -> int:
        """Remove the objects that refused or killed writers left under ``key``; how many. At any time, by anyone."""
        return run(self._register.sweep(validate(key)))

    def verify(self, key: str) -> None:
        """Try out, on a probe object under ``key``, whether the store honours conditional writes; EngineRefused if it
        ignores them, as some S3-compatible servers do."""
        run(self._register.verify(validate(key)))


class AsyncObjectFence:
    """:class:`ObjectFence` for async code: the same calls, awaited, on the same stores.

    A store that is cancelled may have taken effect.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._register = Register(Port(store, awaited=True))

    async def check(self, key: str, token: int | Lease, owner: str | None = None) -> None:
        """Raise the head, read no value. Raises :class:`holdfast.StaleToken`."""
        await self._register.raise_guard(validate(key), bearer(token, owner, fence=type(self).__name__))

    async def load(self, key: str, token: int | Lease, owner: str | None = None) -> bytes | None:
        """Raise the head, then read the value. None: there is none. Call it before anything else is read."""
        return await self._register.load(validate(key), bearer(token, owner, fence=type(self).__name__))

    async def store(self, key: str, data: Data, token: int | Lease, owner: str | None = None) -> None:
        """Replace the value. The same lease must have called :meth:`load` or :meth:`check` before, else UsageError."""
        await self._register.store(validate(key), _checked(data), bearer(token, owner, fence=type(self).__name__))

    async def delete(self, key: str, token: int | Lease, owner: str | None = None) -> None:
        """Remove the value, as :meth:`store` replaces it. The head stays: it is the guard."""
        await self._register.store(validate(key), None, bearer(token, owner, fence=type(self).__name__))

    async def read(self, key: str) -> bytes | None:
        """The value, for a reader without a lease: some value that counted during the call."""
        return await self._register.read(validate(key))

    async def sweep(self, key: str) -> int:
        """Remove the objects that refused or killed writers left under ``key``; how many. At any time, by anyone."""
        return await self._register.sweep(validate(key))

    async def verify(self, key: str) -> None:
        """Try out, on a probe object under ``key``, whether the store honours conditional writes; EngineRefused if it
        ignores them, as some S3-compatible servers do."""
        await self._register.verify(validate(key))


def _checked(data: Data) -> Data:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"a value is bytes, not {type(data).__name__}")
    return data
