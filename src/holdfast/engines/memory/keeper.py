"""A store as the watchdog of one client uses it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from holdfast._runtime.base import Runtime, Wakeup
from holdfast.engines.base import ALL_NAMES, Found, SimpleAttempt, Suspects, Withdrawn
from holdfast.engines.memory.store import Store
from holdfast.engines.memory.view import StoreView


class MemoryKeeper(StoreView):
    """See :class:`holdfast.engines.base.Keeper`."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        super().__init__(store, runtime)
        self._suspects: set[str] = set()
        self._sleeper: Wakeup | None = None
        self._reference = weakref.ref(self, store.keepers.discard)
        store.keepers.add(self._reference)

    async def renew(self, attempts: Sequence[SimpleAttempt], ttl: float, timeout: float) -> Sequence[Found]:
        now = self.runtime.now()
        return [self.renewed(attempt, now, now + ttl) for attempt in attempts]

    async def withdraw(self, attempts: Sequence[SimpleAttempt], timeout: float) -> Sequence[Withdrawn]:
        # Nothing can arrive late: a request is over when its call returns.
        now = self.runtime.now()
        answers: list[Withdrawn] = []
        for attempt in attempts:
            answers.append(self.freed(attempt, now))
            # Its contender may have been interrupted before it left, and a release before it notified the next waiter.
            self.store.leave(attempt.claim.name, attempt.claim.owner, now)
        return answers

    def suspect(self, name: str) -> None:
        """``name`` was broken."""
        if self._sleeper is not None:
            self._suspects.add(name)
            self._sleeper.set()

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        first, self._sleeper = self._sleeper is None, wakeup
        if first:
            return ALL_NAMES  # what was broken before this moment was not reported
        await wakeup.wait(until)
        suspects = set()
        while self._suspects:  # others add to it meanwhile
            suspects.add(self._suspects.pop())
        return suspects

    async def close(self) -> None:
        self.store.keepers.discard(self._reference)
