"""One item, one notify, and a first waiter that ends at about that moment: whether the next one gets the item.

In the world of :mod:`.world` other operations soon make up for a notification that was lost. Here there are none.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from holdfast._core.core import Core
from holdfast._core.policy import Policy
from holdfast.primitives.monitor.opened import Opened
from tests.simulation.conditions.users import BufferUser
from tests.simulation.conditions.world import BufferWorld
from tests.simulation.world.faults import FaultPlan
from tests.simulation.world.runtime import Process
from tests.simulation.world.workload import SimLease

#: When the item is put, in seconds from the beginning. All wait by then.
_NOTIFIED: Final = (2.0, 3.0)
#: How long users stay in their critical sections. The first waiter ends up to twice as long after the put began.
_SECTION: Final = 0.2


class Ending(enum.Enum):
    """What becomes of the first waiter at about the moment of the notify."""

    TIMED_OUT = "its wait times out"
    CANCELLED = "its call is cancelled"
    KILLED = "its process is killed in its critical section"
    FROZEN = "its process is frozen there until its lease has ended"


class _Directed(BufferUser):
    """Does one thing, at its time."""

    notified_at: float  #: when the item is put

    def _draw_wait(self) -> float | None:
        return None

    async def _maybe_raise(self) -> None:
        await self._sleep(self._dice.uniform(0.0, _SECTION))

    async def _maybe_cancelled(self, operate: Callable[[], Awaitable[None]]) -> None:
        await operate()

    async def _linger(self, lease: SimLease) -> None:
        await self._sleep(self._dice.uniform(0.0, _SECTION))

    def _until_about_notified(self) -> float:
        """How long it is until a moment near the notify, from now."""
        near = self._dice.uniform(-_SECTION / 4, 2 * _SECTION)
        return max(self.notified_at + near - self._process.simulator.time, 0.0)


class Producer(_Directed):
    """Puts one item, and keeps the lock for a moment before its store and after it."""

    async def run(self) -> None:
        await self._sleep(self.notified_at)
        await self._put()

    def _draw_numbers(self) -> list[int]:
        return [next(self._shared.numbers)]

    async def _operate(self, *bodies: Callable[[Opened], Awaitable[None]]) -> bool | None:
        return await super()._operate(*bodies, _nothing)


async def _nothing(opened: Opened) -> None:
    """A second operation of the same hold: the first one has stored, and the lock is still held."""


class Successor(_Directed):
    """Waits behind the first one, for as long as it takes."""

    async def run(self) -> None:
        await self._sleep(self._dice.uniform(0.5, 1.0))
        await self._take()


class First(_Directed):
    """Is the first in the queue, and ends too soon."""

    ending: Ending
    crash: Callable[[], None]

    async def run(self) -> None:
        self._note("first", self.ending.value)
        await self._take()

    def _draw_wait(self) -> float | None:
        return self._until_about_notified() if self.ending is Ending.TIMED_OUT else None

    async def _maybe_cancelled(self, operate: Callable[[], Awaitable[None]]) -> None:
        if self.ending is not Ending.CANCELLED:
            await operate()
            return

        async def run() -> None:
            await operate()

        task = self._process.spawn(run(), f"{self._name}-operation")
        await self._cancelled_after(self._until_about_notified(), task)

    async def _maybe_raise(self) -> None:
        """In its critical section, with the item in its hand."""
        simulator = self._process.simulator
        if self.ending is Ending.KILLED:
            simulator.call_later(self._dice.uniform(0.0, _SECTION), self.crash)
            await self._sleep(2 * _SECTION)
        elif self.ending is Ending.FROZEN:
            end = simulator.time + 2 * self._policies[0].ttl
            self._process.pause()
            self._shared.faults.lasts_until(end, self._process)
            simulator.call_at(end, self._process.resume)
        await super()._maybe_raise()


class DirectedWorld(BufferWorld):
    """The first waiter, the producer, and one to three others, each in a process of its own. No other faults."""

    processes = (3, 5)
    users = (1, 1)

    def __init__(self, seed: int) -> None:
        self._notified_at: float | None = None
        super().__init__(seed)

    def draw_plan(self) -> FaultPlan:
        return FaultPlan()

    def make_user(self, core: Core, process: Process, name: str, policies: Sequence[Policy]) -> BufferUser:
        if name == "z":  # closes the buffer at the end
            return super().make_user(core, process, name, policies)
        if self._notified_at is None:
            self._notified_at = self.dice.uniform(*_NOTIFIED)
        kind = {"p0": First, "p1": Producer}.get(process.name, Successor)
        user = kind(self.shared, core, process, name, policies)
        user.ledger, user.notified_at = self.ledger, self._notified_at
        if isinstance(user, First):
            user.ending = self.dice.choice(tuple(Ending))
            user.crash = partial(self.crash, process)
        return user
