"""The resource that the locks protect: a set of integers, changed by read-modify-write over a slow network.

The guard follows rule 4: the *load* raises it, so a stale holder cannot write, not even between the new holder's load
and its store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.simulation.world.network import Network
from tests.simulation.world.runtime import Process, Signal

Guard = tuple[int, str]
T = TypeVar("T")


class Register:
    """One fenced register for each name. Messages to it may be late like any other, but none is lost or repeated."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._guards: dict[str, Guard] = {}
        self.values: dict[str, frozenset[int]] = {}

    async def _exchange(self, process: Process, act: Callable[[], T]) -> T:
        """Sends a message to the resource, runs ``act`` there, and returns the answer.

        The message is under way as soon as this is called: freezing or killing the sender does not stop it.
        """
        simulator, answers = self._network.simulator, list[T]()
        answered = Signal(process)

        def arrive() -> None:
            answers.append(act())
            simulator.call_later(self._network.delay(process), answered.set)

        simulator.call_later(self._network.delay(process), arrive)
        await answered.wait()
        return answers[0]

    async def load(self, process: Process, name: str, guard: Guard) -> frozenset[int] | None:
        """Raise the guard and read, in one step; None if a newer token was seen."""

        def act() -> frozenset[int] | None:
            return self.values.get(name, frozenset()) if self.admit_load(name, guard) else None

        return await self._exchange(process, act)

    async def store(self, process: Process, name: str, guard: Guard, value: frozenset[int]) -> bool:
        """Write; False if the guard has moved since the load."""

        def act() -> bool:
            admitted = self.admit_store(name, guard)
            if admitted:
                self.values[name] = value
            return admitted

        return await self._exchange(process, act)

    def admit_load(self, name: str, guard: Guard) -> bool:
        """Whether this load may read. If so, it sets the guard."""
        if not self._newest(name, guard):
            return False
        self._guards[name] = guard
        return True

    def admit_store(self, name: str, guard: Guard) -> bool:
        """Whether this store may write: there was no later load."""
        return self._guards.get(name) == guard

    def _newest(self, name: str, guard: Guard) -> bool:
        seen = self._guards.get(name)
        return seen is None or guard[0] > seen[0] or guard == seen
