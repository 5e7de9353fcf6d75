"""The simulated users: every kind of acquire, short and long sections, and additions to a fenced register."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from holdfast._core import breaking, direct_acquire
from holdfast._core.core import Core
from holdfast._core.policy import Policy
from holdfast._core.states import State
from holdfast.aio import AsyncLease
from holdfast.errors import AcquireTimeout, EngineUnavailable, LockError, LockLost, OutcomeUnknown
from tests.simulation.checkers.history import History, Violation
from tests.simulation.checkers.holder_view import Attempt, HolderView, TrackedHold
from tests.simulation.checkers.register import Register
from tests.simulation.world.faults import Faults
from tests.simulation.world.runtime import Process, Task

Step = Callable[["SimLease"], Awaitable[None]]


class SimLease(AsyncLease):
    """The shipped lease, with data of the checks."""

    tracked: TrackedHold
    reports = 0  #: calls of on_lost

    def disown(self) -> None:
        """Called at the end of the world: no warning about an unreleased lease."""
        self._hold.handles.pop(self._key, None)


@dataclass
class Shared:
    """Objects that all users of one run share."""

    holders: HolderView
    faults: Faults
    history: History
    register: Register
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    acknowledged: dict[str, set[int]] = field(default_factory=dict)
    leases: weakref.WeakSet[SimLease] = field(default_factory=weakref.WeakSet)


class User:
    """One task of a client process."""

    def __init__(self, shared: Shared, core: Core, process: Process, name: str, policies: Sequence[Policy]) -> None:
        self._shared = shared
        self._core = core
        self._process = process
        self._name = name
        self._policies = policies
        self._dice = process.simulator.random
        self._earlier: dict[str, int] = {}  # the last token of each name
        self._forgot = False  # to release a lease

    def _note(self, what: str, *details: object) -> None:
        self._shared.history.add(self._process.simulator.time, f"{self._process.name}/{self._name}", what, *details)

    async def _sleep(self, seconds: float) -> None:
        await self._core.front.sleep_until(self._process.now() + seconds)

    async def run(self) -> None:
        """Works while there are faults; then once more on every name, without a timeout."""
        while not self._shared.faults.healed:
            await self._work(self._dice.choice(self._policies), self._draw_timeout())
            await self._sleep(self._dice.expovariate(2.0))
        for policy in self._policies:
            await self._work(policy, None)

    def _draw_timeout(self) -> float | None:
        ttl = self._policies[0].ttl
        return self._dice.choice((0.0, self._dice.uniform(0.01, ttl), self._dice.uniform(ttl, 3 * ttl), None))

    async def _work(self, policy: Policy, timeout: float | None) -> None:
        lease = await self._acquire(policy, timeout)
        if lease is None:
            return
        if self._dice.random() < 0.01 and not self._shared.faults.healed:
            await self._break(policy, lease.token)
        for _ in range(self._dice.randint(0, 3)):
            await self._dice.choice(self._steps(lease))(lease)
        if self._dice.random() < 0.97:
            await self._release(lease)
        else:
            self._note("forget", lease.tracked)
            self._forgot = True
            self._shared.holders.releases(lease.tracked)
        self._earlier[policy.name] = lease.token
        dropped = None if lease.released else weakref.ref(lease)
        del lease
        if dropped is not None and dropped() is not None:
            gc.collect()  # an exception may have left a cycle of frames that refers to it

    def _steps(self, lease: SimLease) -> Sequence[Step]:
        """What the user may do with a lease."""
        return (self._add, self._add, self._linger, self._reenter, self._renew)

    def _may_interrupt(self, task: Task) -> None:
        """Sometimes arranges a signal between two steps of the call."""
        if self._dice.random() < 0.5 and not self._shared.faults.healed:
            task.signal_in = self._dice.randint(0, 15)

    # -- acquiring -----------------------------------------------------------------------------------------------------

    async def _acquire(self, policy: Policy, timeout: float | None) -> SimLease | None:
        """Acquires in this task, or in a new one (as under asyncio.wait_for) that may be cancelled meanwhile."""
        results: list[SimLease] = []
        if self._dice.random() < 0.7:
            await self._attempt(policy, timeout, results)
        else:
            task = self._process.spawn(self._attempt(policy, timeout, results), f"{self._name}-acquire")
            self._may_interrupt(task)
            # Some are cancelled while the first request is under way, some while waiting.
            limit = self._process.now() + self._dice.choice((0.002, policy.ttl)) * self._dice.expovariate(1.0)
            healed = self._shared.faults.healed
            if not await task.done.wait(None if healed or self._dice.random() < 0.3 else limit):
                self._note("cancel", policy.name)
                task.cancel()
                await task.done.wait()
        return results[0] if results else None

    async def _attempt(self, policy: Policy, timeout: float | None, results: list[SimLease]) -> None:
        holders, calm = self._shared.holders, self._calm()
        attempt = holders.attempt(self._process, policy.name, timeout)
        self._note("acquire", policy.name, timeout)
        try:
            lease = SimLease()
            if not self._core.reenter(policy, lease):
                await direct_acquire.acquire(self._core, policy, timeout, lease)
        except AcquireTimeout:
            self._timed_out(attempt)
        except EngineUnavailable as error:
            self._note("unavailable", policy.name, type(error).__name__)
            self._check_duration(attempt)
            # A connection that fell silent during the faults may be found only now.
            if calm and self._shared.faults.disturbed(self._process) < attempt.began:
                raise Violation("I6", f"{policy.name}: {error!r} without a fault") from error
        else:
            self._shared.leases.add(lease)
            lease.tracked = holders.acquired(attempt, lease._hold)
            lease.on_lost(self._report)
            self._note("acquired", policy.name, lease.tracked)
            results.append(lease)
        finally:
            holders.failed(attempt)

    def _report(self, lease: SimLease) -> None:
        self._note("loss reported", lease.tracked)
        lease.reports += 1

    def _calm(self) -> bool:
        faults = self._shared.faults
        return faults.healed and self._process.simulator.time > faults.last_effect

    def _timed_out(self, attempt: Attempt) -> None:
        self._note("timeout", attempt.name)
        waited = self._process.simulator.time - attempt.began
        # With a fast clock the timeout may end slightly early.
        if attempt.timeout is None or waited < attempt.timeout * 0.99:
            raise Violation("I10", f"acquire(timeout={attempt.timeout}) timed out after {waited:.3f} s")
        self._check_duration(attempt)

    def _check_duration(self, attempt: Attempt) -> None:
        """The call's timeout is exceeded at most by a moment, or after a fault by the time of a few requests."""
        now, process = self._process.simulator.time, self._process
        if attempt.timeout is None or process.resumed >= attempt.began:
            return
        calm = self._shared.faults.disturbed(process) < attempt.began
        late = now - attempt.began - attempt.timeout * 1.01
        if late > (0.1 if calm else 3 * self._policies[0].request_timeout + 0.5):
            raise Violation("I10", f"acquire(timeout={attempt.timeout}) took {late:.3f} s longer")

    # -- holding -------------------------------------------------------------------------------------------------------

    async def _add(self, lease: SimLease) -> None:
        """Adds a new number to the register by read-modify-write. An acknowledged number must be there at the end."""
        register, name = self._shared.register, lease.name
        guard = (lease.token, lease.owner)
        number = next(self._shared.numbers)
        value = await register.load(self._process, name, guard)
        if value is None:
            self._note("stale", name, lease.token)
            return
        await self._sleep(self._dice.choice((0.0, 0.05, lease.ttl / 2)) * self._dice.expovariate(1.0))
        if await register.store(self._process, name, guard, value | {number}):
            self._note("added", name, number)
            self._shared.acknowledged.setdefault(name, set()).add(number)

    async def _linger(self, lease: SimLease) -> None:
        longest = 0.1 if self._shared.faults.healed or self._dice.random() < 0.7 else 2 * lease.ttl
        await self._sleep(self._dice.uniform(0, longest))

    async def _reenter(self, lease: SimLease) -> None:
        results: list[SimLease] = []
        hold = lease._hold
        valid = lease.tracked.is_valid() and hold.policy.reentrant and hold.caller is self._core.front.caller()
        await self._attempt(hold.policy, 0.0, results)
        if valid and (not results or results[0].tracked is not lease.tracked):
            raise Violation("I5", f"{lease.tracked}: re-entry got {results}")
        if results:
            await self._release(results[0])

    async def _renew(self, lease: SimLease) -> None:
        try:
            await lease.renew()
        except (LockLost, EngineUnavailable) as error:
            self._note("not renewed", lease.name, type(error).__name__)

    async def _break(self, policy: Policy, token: int) -> None:
        """An operator breaks the present holder (usually this process), the holder with this token, or a holder with an
        earlier token, which must not break a later holder."""
        only = self._dice.choice((None, token, self._earlier.get(policy.name, token - 1)))
        self._note("break", policy.name, only)
        try:
            await breaking.break_(self._core, policy.name, only)
        except (EngineUnavailable, OutcomeUnknown) as error:
            self._note("not broken", policy.name, type(error).__name__)

    # -- releasing -----------------------------------------------------------------------------------------------------

    async def _release(self, lease: SimLease) -> None:
        if self._dice.random() < 0.9:
            await self._give_back(lease)
            return
        task = self._process.spawn(self._give_back(lease), f"{self._name}-release")
        self._may_interrupt(task)
        if not await task.done.wait(self._process.now() + self._dice.expovariate(500.0)):
            task.cancel()
            await task.done.wait()

    async def _give_back(self, lease: SimLease) -> LockError | None:
        """What it raised."""
        tracked, forgotten = lease.tracked, self._shared.holders.forgotten
        valid, was_forgotten = tracked.is_valid(), forgotten(lease.tracked.owner)
        self._note("release", tracked)
        self._check_reports(lease)
        self._shared.holders.releases(tracked)
        try:
            await lease.release()
        except LockLost as loss:
            self._note("lost", lease.name, lease.token, loss.reason)
            in_time = self._process.now() < tracked.hold.deadline
            if valid and in_time and not (was_forgotten or forgotten(tracked.owner)):
                raise Violation("I4", f"{tracked}: release of a valid lease raised {loss!r}") from loss
            return loss
        except OutcomeUnknown as error:
            self._note("unknown", lease.name, lease.token)
            return error
        else:
            self._note("released", lease.name, lease.token)
            return None

    def _check_reports(self, lease: SimLease) -> None:
        """A loss is reported exactly once; the report may still be under way."""
        hold = lease._hold
        if lease.reports > 1 or (lease.reports and hold.state is not State.LOST):
            raise Violation("I7", f"{lease.tracked}: its loss was reported {lease.reports} times")
