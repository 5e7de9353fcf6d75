"""An election: one of several candidates leads, and the next one follows when it resigns, dies or is lost.

Leadership is a lease on a fair lock, with a fencing token and a loss signal: candidates lead in the order in which they
came. What a candidate says of itself, its value, is stored with its claim, so observers learn it by ``inspect``.

Here are the steps that do I/O (written once), and the sync API. ``aio/election.py`` has the async API.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from holdfast._config.durations import Duration, check_timeout
from holdfast._core import operators
from holdfast._core.core import Core
from holdfast._core.direct_acquire import acquire
from holdfast._runtime.blocking import run
from holdfast.base_client import BaseClient
from holdfast.client import Client
from holdfast.engines.base import EXCLUSIVE, LEADER, Holder, Kind, RequestFailed
from holdfast.engines.optional_sessions import WatchableSession
from holdfast.engines.registers import Listener
from holdfast.errors import EngineRefused, LockLost, UsageError
from holdfast.lease import BaseLease, Lease, NotPortable
from holdfast.primitives.multi import drop, release_all

#: How often an observer asks who leads, in seconds.
_ASKS_EVERY: Final = (0.5, 1.0)
#: The longest value, in characters: it is stored with every claim.
_LONGEST_VALUE: Final = 256

T = TypeVar("T", bound=BaseLease)


class BaseElection(NotPortable, Generic[T]):
    """What sync and async elections share."""

    def __init__(
        self, client: BaseClient, name: str, value: str | None, ttl: Duration, on_lost: Callable[[Any], Any] | None
    ) -> None:
        if not client._engine.guarantees.fair:
            raise UsageError(
                f"election {name!r}: {client._engine!r} keeps no queue, so candidates could not follow each other in "
                "their order; use an engine whose guarantees include 'fair', or a plain lock",
                name=name,
            )
        if value is not None and (type(value) is not str or len(value) > _LONGEST_VALUE):
            raise UsageError(f"election {name!r}: value is a text of at most {_LONGEST_VALUE} characters", name=name)
        mode = LEADER if Kind.ELECTION in client._engine.kinds else EXCLUSIVE
        policy = client._policy(name, ttl=ttl, fair=True, on_lost=on_lost, mode=mode)
        self._policy = dataclasses.replace(policy, value=value, called="election")
        self._leases: list[T] = []  # of campaigns that were won, until resign

    @property
    def name(self) -> str:
        """The election's name, without the namespace."""
        return self._policy.name

    async def _campaign(self, core: Core, lease: T, timeout: float | None) -> T:
        if not core.reenter(self._policy, lease):
            await acquire(core, self._policy, timeout, lease)
        lease._ready(self._policy.on_lost)
        # The last step: once it is kept here, it leads until resign, or until an interrupted campaign is undone.
        self._leases = [each for each in self._leases if not each.released] + [lease]
        return lease

    def _abandon(self, lease: T) -> None:
        """A campaign was interrupted: its caller has no lease, so it must not lead, also if it had just won."""
        self._leases = [each for each in self._leases if each is not lease]
        drop([lease])

    async def _resign(self) -> None:
        leases = self._leases
        try:
            await release_all(leases)
        except LockLost:
            pass  # it does not lead any more, which is what the caller wants
        # Not before: interrupted, the next call finds what is left.
        self._leases = [each for each in self._leases if each not in leases]

    async def _leader(self, core: Core) -> Holder | None:
        holders = (await operators.inspect(core, self.name)).holders
        return holders[0] if holders else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class Observation(Generic[T]):
    """One call of ``observe``: the last leader that was reported, and what wakes it when there may be another one."""

    def __init__(self, election: BaseElection[T]) -> None:
        self._election = election
        self._known: tuple[Holder | None] | None = None
        self._core: Core | None = None
        self._listener: Listener | None = None

    async def following(self, core: Core) -> Holder | None:
        """The leader, as soon as it is another one than the last that was reported; None: there is none."""
        if core is not self._core:  # the first time, or the client was opened again
            await self._listen(core)
        while True:
            leader = await self._election._leader(core)
            if self._known is None or _identity(leader) != _identity(self._known[0]):
                self._known = (leader,)
                return leader
            until = core.front.now() + random.uniform(*_ASKS_EVERY)
            if self._listener is None:
                await core.front.sleep_until(until)
            else:
                await self._listener.wait(until)

    async def _listen(self, core: Core) -> None:
        """Before the first question: from here on no change is missed. Where that fails, it asks from time to time."""
        self.close()
        self._core = core
        core.check_open()
        if isinstance(core.session, WatchableSession):
            self._listener = core.session.watch(self._election._policy.key)
            with suppress(RequestFailed, EngineRefused):
                await self._listener.arm()

    def close(self) -> None:
        self._core = None
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()


def _identity(leader: Holder | None) -> tuple[str, int | None] | None:
    return None if leader is None else (leader.owner, leader.token)


class Election(BaseElection[Lease]):
    """One of several candidates leads. Creating the object does no I/O; threads may share it."""

    def __init__(
        self,
        client: Client,
        name: str,
        value: str | None,
        ttl: Duration,
        on_lost: Callable[[Lease], Any] | None,
    ) -> None:
        super().__init__(client, name, value, ttl, on_lost)
        self._client = client

    def campaign(self, timeout: Duration | None = None) -> Lease:
        """Wait until this candidate leads, for at most ``timeout`` seconds, and return the lease of its leadership.

        It leads until the lease is released, ``resign`` is called, or the lease is lost. Raises what ``Lock.acquire``
        raises: AcquireTimeout if another one led all the time.
        """
        lease = Lease()
        try:
            return run(self._campaign(self._client._open(), lease, check_timeout(timeout)))
        except BaseException:
            self._abandon(lease)
            raise

    def leader(self) -> Holder | None:
        """Who leads, as the engine saw it just now: ``value``, ``host``, ``token``; None if there is no leader."""
        return run(self._leader(self._client._open()))

    def observe(self) -> Iterator[Holder | None]:
        """Yield the leader now, and again whenever it is another one; None while there is none. It never ends.

        The engine wakes it when the leader changes, if it can; it also asks once a second at least. It yields the
        latest leader: one that led between two questions is skipped.
        """
        observation = Observation(self)
        try:
            while True:
                yield run(observation.following(self._client._open()))
        finally:
            observation.close()

    def resign(self) -> None:
        """Give up the leadership that campaigns of this object have won. Idempotent; quiet if it was lost before."""
        run(self._resign())
