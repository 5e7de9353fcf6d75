"""A process that holds the ledger, is frozen during a failover, and writes when it resumes (faults R13 and R17)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from holdfast._runtime import clock
from tests.redis.failover.worker import NAME
from tests.support.child import Child
from tests.support.history import Hold

#: Longer than any failover takes: the lease is valid all the time.
TTL: Final = 30.0
#: The number that this holder adds.
NUMBER: Final = -1


class FrozenHolder(Child):
    def __init__(self, url: str, directory: Path) -> None:
        super().__init__(url, ttl=TTL)
        worker = "__import__('tests.redis.failover.worker', fromlist=['registers'])"
        path = f"__import__('pathlib').Path({str(directory)!r})"
        self.do(f"keep.update(registers={worker}.registers({path}))")
        self._began = self._acquired = 0.0

    def take_and_freeze(self) -> None:
        self._began = clock.now()
        self.do(f"keep.update(lease=locks.lock({NAME!r}).acquire(timeout=10))")
        self._acquired = clock.now()
        self.do("keep.update(numbers=[register.load(keep['lease']) for register in keep['registers']])")
        # So that its watchdog, which wakes up too, does not find the loss before the caller is asked.
        self.do("locks._opened.lock.acquire()")
        self.freeze()

    def wake_and_write(self) -> tuple[Hold, list[str]]:
        """Returns the hold, and the outcomes of its stores to the fenced and to the unfenced register."""
        self.send("[keep['lease'].held, locks._opened.lock.release()][0]")
        self.wake()
        assert self.answer(), "the loss cannot be known yet"
        held = clock.now()
        store = f"keep['registers'][{{}}].store(keep['lease'], keep['numbers'][{{}}] | {{{{{NUMBER}}}}})"
        stores = [self.do(f"error_of(lambda: {store.format(place, place)})") for place in range(2)]
        outcome = self.do("error_of(keep['lease'].renew)")
        lost, _, reason = outcome.partition(":")
        assert lost == "LockLost", outcome
        owner, token = self.do("[keep['lease'].owner, keep['lease'].token]")
        return Hold(owner, token, self._began, self._acquired, held, reason, None), stores
