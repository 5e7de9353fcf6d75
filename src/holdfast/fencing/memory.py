"""A fence for data in the memory of one process."""

from __future__ import annotations

from holdfast.fencing.base import Fence
from holdfast.fencing.rule import Bearer
from holdfast.fencing.turns import GuardEntry, Turns


class MemoryFence(Fence):
    """A fence for the threads and tasks of one process, on any number of event loops.

    It stores one token for each resource and never removes one, since that would let an old holder in. A forked child
    has a copy of its own.
    """

    def __init__(self) -> None:
        self._turns = Turns()
        self._seen: dict[str, Bearer] = {}

    def _gate(self, resource: str) -> _MemoryGate:
        return _MemoryGate(resource, self._turns, self._seen)

    def __repr__(self) -> str:
        return f"<MemoryFence resources={len(self._seen)}>"


class _MemoryGate:
    __slots__ = ("_resource", "_seen", "_turns")

    slow = False

    def __init__(self, resource: str, turns: Turns, seen: dict[str, Bearer]) -> None:
        self._resource = resource
        self._turns = turns
        self._seen = seen

    def try_lock(self, entry: GuardEntry) -> bool:
        return self._turns.take(self._resource, entry)

    def unlock(self, entry: GuardEntry) -> None:
        self._turns.give(self._resource, entry)

    def load(self) -> Bearer | None:
        return self._seen.get(self._resource)

    def store(self, seen: Bearer) -> None:
        self._seen[self._resource] = seen
