"""A semaphore: a number of permits, leased like locks. What the engine grants at once, a lease holds as one."""

from __future__ import annotations

from typing import Never

from holdfast._config import foreign_keywords
from holdfast._config.durations import Duration, check_timeout
from holdfast._core import operators, semaphores
from holdfast._core.direct_acquire import acquire
from holdfast._core.policy import Policy
from holdfast._runtime.blocking import run, run_rest
from holdfast.client import Client, LockBlock
from holdfast.engines.base import LockState
from holdfast.errors import AcquireTimeout
from holdfast.lease import Lease


class Semaphore(LockBlock[Lease]):
    """A name and a policy. Creating one does no I/O; threads may share it. ``with semaphore:`` holds one permit.

    Each acquire takes permits of its own, also by the same caller. Requests are granted in the order in which they
    came: those for few permits do not starve one for many. A holder that dies returns its permits within its ttl.
    """

    def __init__(self, client: Client, policy: Policy) -> None:
        super().__init__(policy.timeout)
        self._client = client
        self._policy = policy  #: for one permit

    @property
    def name(self) -> str:
        """Its name, without the namespace."""
        return self._policy.name

    def acquire(self, n: int = 1, *, timeout: Duration | None = None, **foreign: Never) -> Lease:
        """Wait for ``n`` permits, for at most ``timeout`` seconds (None: for ever, 0: one try), and return their lease.

        All of them are granted at once, and returned at once when the lease is released. Raises UsageError for more
        than the semaphore has; else as ``Lock.acquire``.
        """
        if foreign:
            foreign_keywords.refuse_keywords("acquire", foreign, ("n", "timeout"))
        core, seconds, lease = self._client._open(), check_timeout(timeout), Lease()
        policy = semaphores.for_permits(self._policy, n)
        run_rest(acquire(core, policy, seconds, lease))
        semaphores.compare_size(core, lease._hold)
        return lease._ready(policy.on_lost)

    def try_acquire(self, n: int = 1, *, timeout: Duration | None = 0, **foreign: Never) -> Lease | None:
        """As ``acquire``, but None instead of AcquireTimeout; one try by default."""
        if foreign:
            foreign_keywords.refuse_keywords("try_acquire", foreign, ("n", "timeout"))
        try:
            return self.acquire(n, timeout=timeout)
        except AcquireTimeout:
            return None

    def resize(self, n: int) -> None:
        """Have ``n`` permits from now on, for all clients. It is created if there is none.

        Permits that are held stay held: if they are more than ``n``, none is granted until enough were released. A
        waiter that wants more than ``n`` gets UsageError.

        A request that is repeated because its reply was lost takes effect once, except on ZooKeeper: there a repeat may
        undo a newer resize. One that raises EngineUnavailable may still take effect, if it is under way.
        """
        run(semaphores.resize(self._client._open(), self._policy, n))

    def inspect(self) -> LockState:
        """Its permits, holders and queue, as the engine saw them just now: ``client.inspect`` of its name."""
        return run(operators.inspect(self._client._open(), self.name))

    def __repr__(self) -> str:
        return f"<Semaphore {self.name!r} of {self._client!r}>"
