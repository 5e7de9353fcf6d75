"""Producers and consumers of the buffer: each operation as the shipped monitors run it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from holdfast._core.hold import Hold
from holdfast.errors import EngineRefused, LockError, LockLost, OutcomeUnknown
from holdfast.primitives import condition_queue
from holdfast.primitives.monitor.opened import Opened, Opening
from holdfast.primitives.monitor.state import Schema
from holdfast.primitives.monitor.variables import checks_of
from tests.simulation.checkers.history import Violation
from tests.simulation.conditions.buffer_view import CAPACITY, ITEMS, KEY, SPACE
from tests.simulation.conditions.sleepers import BufferHolders, Sleeper
from tests.simulation.world.runtime import Task
from tests.simulation.world.workload import SimLease, User

_MAX_BYTES: Final = 10_000
Body = Callable[[Opened], Awaitable[None]]


class _Variables:
    items: list[int]
    closed: bool


SCHEMA: Final = Schema(checks_of(_Variables, ("items", "closed")), {"items": [], "closed": False})


class BodyRaised(Exception):
    """A user's operation raises."""


@dataclass
class Ledger:
    """What the users know of their operations."""

    put: set[int] = field(default_factory=set)  #: acknowledged
    not_put: set[int] = field(default_factory=set)  #: certainly
    taken: list[int] = field(default_factory=list)  #: acknowledged
    to_be_taken: set[int] = field(default_factory=set)


class BufferUser(User):
    """Puts and takes while there are faults."""

    ledger: Ledger

    async def run(self) -> None:
        while not self._shared.faults.healed:
            await self._dice.choice((self._put, self._take))()
            await self._sleep(self._dice.expovariate(2.0))

    async def close_buffer(self) -> None:
        """Ends all waits."""

        async def close(opened: Opened) -> None:
            opened.values["closed"] = True
            _notify(opened, ITEMS, None)
            _notify(opened, SPACE, None)

        while not await self._operate(close):
            pass

    # -- operations ----------------------------------------------------------------------------------------------------

    async def _put(self) -> None:
        """One item; or two, by two operations of one hold."""
        numbers = self._draw_numbers()
        appended: list[int] = []

        def putting(number: int) -> Body:
            async def put(opened: Opened) -> None:
                if await self._until(opened, SPACE, lambda: len(opened.values["items"]) < CAPACITY):
                    opened.values["items"].append(number)
                    await self._maybe_raise()
                    appended.append(number)
                    _notify(opened, ITEMS, 1)

            return put

        async def operate() -> None:
            done = await self._operate(*map(putting, numbers))
            if done:
                self._note("put", *appended)
                self.ledger.put.update(appended)
            elif done is False and len(numbers) == 1:
                self.ledger.not_put.update(numbers)

        await self._maybe_cancelled(operate)

    def _draw_numbers(self) -> list[int]:
        return [next(self._shared.numbers) for _ in range(self._dice.choice((1, 1, 2)))]

    async def _take(self) -> None:
        number: int | None = None

        async def take(opened: Opened) -> None:
            nonlocal number
            if await self._until(opened, ITEMS, lambda: bool(opened.values["items"])):
                number = opened.values["items"].pop(0)
                await self._maybe_raise()
                self.ledger.to_be_taken.add(number)
                _notify(opened, SPACE, 1)

        async def operate() -> None:
            if await self._operate(take) and number is not None:
                self._note("taken", number)
                self.ledger.taken.append(number)

        await self._maybe_cancelled(operate)

    async def _maybe_raise(self) -> None:
        if self._dice.random() < 0.5:
            await self._sleep(self._dice.uniform(0.0, 0.1))
        # More often at the end: then no later operation makes up for a notification that is lost with it.
        if self._dice.random() < (0.4 if self._shared.faults.healed else 0.05):
            raise BodyRaised

    async def _until(self, opened: Opened, condition: str, ready: Callable[[], bool]) -> bool:
        """Whether it is ready, and the buffer not closed."""
        timeout = self._draw_wait()
        while not ready():
            if opened.values["closed"] or not await self._wait(opened, condition, timeout):
                return False
        return not opened.values["closed"]

    def _draw_wait(self) -> float | None:
        return self._dice.choice((None, None, self._dice.uniform(0.1, 6.0)))

    async def _wait(self, opened: Opened, condition: str, timeout: float | None) -> bool:
        holders = self._shared.holders
        assert isinstance(holders, BufferHolders)
        sleeper, token = Sleeper(self._process, condition), opened.hold.token
        holders.sleeping[sleeper] = None
        self._note("wait", condition, timeout)
        try:
            woken = await opened.wait(condition, timeout)
        finally:
            holders.sleeping.pop(sleeper, None)
        self._note("woken" if woken else "waited", condition)
        if opened.hold.token <= token:
            raise Violation("I5", f"{condition}: token {opened.hold.token} after a wait that began with {token}")
        return woken

    async def _operate(self, *bodies: Body) -> bool | None:
        """As a monitor runs operations. True: done; False: the last was certainly without effect; None: not known."""
        results: list[SimLease] = []
        await self._attempt(self._policies[0], None, results)
        if not results:
            return False
        lease = results[0]
        hold = lease._hold
        try:
            for body in bodies:
                await self._run(hold, body)
            if len(bodies) > 1:
                await self._linger(lease)  # a late copy of the first store may arrive
            is_stored = hold.deferred is None
            error = await self._give_back(lease)
            return True if is_stored or error is None else None
        except BodyRaised:
            return False
        except EngineRefused as error:
            raise Violation("I4", f"{lease.tracked}: {error!r}") from error
        except LockLost as error:
            self._note("lost", error.reason)
            return False
        except LockError as error:
            self._note("failed", type(error).__name__)
            return None if isinstance(error, OutcomeUnknown) else False
        finally:
            if not self._process.dead and not lease.released:
                await self._give_back(lease)

    async def _run(self, hold: Hold, body: Body) -> None:
        opening = Opening(self._core, hold, KEY, SCHEMA, _MAX_BYTES)
        try:
            await body(await opening.begin())
            await opening.end()
        except BaseException:  # also if it is cancelled
            opening.fail()
            hold.failed = True  # as a ``with`` block does
            raise
        finally:
            opening.close()

    async def _maybe_cancelled(self, operate: Callable[[], Awaitable[None]]) -> None:
        if self._dice.random() < 0.6:
            await operate()
            return

        async def run() -> None:
            await operate()

        task = self._process.spawn(run(), f"{self._name}-operation")
        self._may_interrupt(task)
        await self._cancelled_after(3.0 * self._dice.expovariate(1.0), task)

    async def _cancelled_after(self, seconds: float, task: Task) -> None:
        if not await task.done.wait(self._process.now() + seconds):
            self._note("cancel")
            task.cancel()
            await task.done.wait()
        holders = self._shared.holders
        assert isinstance(holders, BufferHolders)
        holders.interrupted(self._process.simulator.time)


def _notify(opened: Opened, condition: str, count: int | None) -> None:
    register = opened.register
    register.apply(condition_queue.notify(register.queue, condition, count, register.mine))
