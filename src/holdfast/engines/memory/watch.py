"""Being woken when the holder of a name changes, without waiting for the lock."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from holdfast._runtime.base import Event, Runtime

if TYPE_CHECKING:
    from holdfast.engines.memory.store import Store


class MemoryWatch:
    """See :class:`holdfast.engines.registers.Listener`. The store does not keep it alive. An entry that expires is no
    change of the store: the caller looks."""

    def __init__(self, store: Store, runtime: Runtime, name: str) -> None:
        self._store = store
        self._runtime = runtime
        self.name = name
        self._changed: Event = runtime.event()

    async def arm(self) -> None:
        with self._store.lock:  # a change that is being made without a report is seen by the caller's next look
            self._store.watches.add(weakref.ref(self, self._store.watches.discard))

    def wake(self) -> None:
        self._changed.set()

    async def wait(self, until: float) -> None:
        if await self._changed.wait(until):
            self._changed = self._runtime.event()  # changed again before this: the caller looks after it anyway

    def close(self) -> None:
        self._store.watches.discard(weakref.ref(self))
