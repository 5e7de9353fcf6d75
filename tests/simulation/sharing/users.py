"""Users of read-write locks and semaphores."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast._core import semaphores
from holdfast._core.policy import Policy
from holdfast.engines.base import READ, WRITE, Kind
from holdfast.errors import EngineUnavailable, UsageError
from tests.simulation.checkers.history import Violation
from tests.simulation.world.workload import SimLease, Step, User

LARGEST = 4  #: of a semaphore


class SharingUser(User):
    """Reads, writes, reads inside of a write and downgrades; takes permits, and resizes."""

    _nested: list[SimLease]

    async def run(self) -> None:
        self._nested = []
        await super().run()

    async def _work(self, policy: Policy, timeout: float | None) -> None:
        await super()._work(policy, timeout)
        await self._leave_nested()

    def _steps(self, lease: SimLease) -> Sequence[Step]:
        mode = lease._hold.policy.mode
        if mode is WRITE:
            return (self._add, self._linger, self._reenter, self._renew, self._nest, self._nest)
        if mode.kind is Kind.SEMAPHORE:
            return (self._linger, self._linger, self._reenter, self._renew, self._resize)
        return (self._linger, self._linger, self._reenter, self._renew)

    async def _attempt(self, policy: Policy, timeout: float | None, results: list[SimLease]) -> None:
        try:
            await super()._attempt(policy, timeout, results)
        except UsageError as error:
            self._note("refused", policy.name, error)
            # More permits than there are: whether that is so, the server's view checks. An upgrade: after a write that
            # was lost, or a read that was dropped, which the client has not noticed yet.
            if policy.mode.kind is not Kind.SEMAPHORE and not (policy.mode is WRITE and (self._forgot or self._nested)):
                raise

    async def _nest(self, lease: SimLease) -> None:
        """Reads inside of its write: granted at once, also before writers that wait."""
        tracked, hold = lease.tracked, lease._hold
        read = next(each for each in self._policies if each.name == lease.name and each.mode is READ)
        results: list[SimLease] = []
        own = hold.caller is self._core.front.caller()
        valid = own and tracked.is_valid()
        before = len(self._shared.history.events)
        await self._attempt(read, self._dice.choice((0.0, 0.3)), results)
        if results:
            self._nested.append(results[0])
            return
        events = self._shared.history.events[before:]
        me = f"{self._process.name}/{self._name}"
        timed_out = any(what == "timeout" and source == me for _, source, what, _ in events)
        if valid and timed_out and tracked.is_valid() and not self._shared.holders.forgotten(tracked.owner):
            raise Violation("I12", f"{tracked}: a read inside of this write was not granted")

    async def _leave_nested(self) -> None:
        while self._nested:
            await self._linger(self._nested[-1])
            await super()._release(self._nested.pop())

    async def _release(self, lease: SimLease) -> None:
        if self._dice.random() < 0.5:
            await self._leave_nested()
        await super()._release(lease)  # with nested reads left, it is a downgrade

    async def _resize(self, lease: SimLease) -> None:
        size = self._dice.randint(1, LARGEST)
        self._note("resize", lease.name, size)
        try:
            await semaphores.resize(self._core, lease._hold.policy, size)
        except EngineUnavailable as error:
            self._note("not resized", lease.name, type(error).__name__)
