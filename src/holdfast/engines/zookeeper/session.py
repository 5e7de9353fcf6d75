"""ZooKeeper's locks as the callers of one client use them: each contender is a node, and a node that no conflicting one
precedes holds the lock. ``semaphore.py`` and ``rounds.py`` have what is different in a semaphore and in a barrier.

Written once for sync and async. Requests of one ZooKeeper session are answered in order, so requests that belong
together are pipelined: an uncontended acquire is two pipelined requests, a release is one request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from holdfast._runtime.base import Runtime
from holdfast.engines.base import Busy, Claim, Found, Granted, Kind, LockState, RequestFailed, SimpleAttempt
from holdfast.engines.optional_sessions import Gathering
from holdfast.engines.zookeeper import layout, names
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.contender import ZooKeeperContender
from holdfast.engines.zookeeper.hub import Hub
from holdfast.engines.zookeeper.lock_watch import watch_contenders
from holdfast.engines.zookeeper.member import HubMember
from holdfast.engines.zookeeper.nesting import NestedAttempt
from holdfast.engines.zookeeper.obstacles import Predecessor
from holdfast.engines.zookeeper.operators import Operators
from holdfast.engines.zookeeper.register_listener import ARM_WITHIN, ZooKeeperListener
from holdfast.engines.zookeeper.registers import ZooKeeperRegisters
from holdfast.engines.zookeeper.renewal import Renewal
from holdfast.engines.zookeeper.rounds import Rounds
from holdfast.engines.zookeeper.semaphore import Semaphores

#: A claim's node may be removed right after its creation; the claim gives up after this many times.
_ATTEMPTS: Final = 5


class ZooKeeperSession(HubMember):
    """See :class:`holdfast.engines.base.Session`."""

    attempt = SimpleAttempt

    def __init__(
        self,
        hub: Hub,
        runtime: Runtime,
        base: str,
        current: Callable[[], Hub] | None = None,
        token_ttl: float | None = None,
    ) -> None:
        super().__init__(hub, runtime, base, current)
        self._base = base
        self._registers = ZooKeeperRegisters(self._requester, self._queue, base, token_ttl)
        self._operators = Operators(self._requester, base)
        self._semaphores = Semaphores(self._requester, self._queue)
        self._rounds = Rounds(self._requester, self._queue)

    @property
    def registers(self) -> ZooKeeperRegisters:
        self._reopen()
        return self._registers

    # -- acquiring -------------------------------------------------------------------------------------------------

    def nested(self, claim: Claim, under: SimpleAttempt) -> SimpleAttempt:
        write = self._hub.place(under)
        return SimpleAttempt(claim) if write is None else NestedAttempt(claim, write)

    async def acquire(self, attempt: SimpleAttempt, timeout: float) -> Granted | Busy:
        self._reopen()
        mode = attempt.claim.mode
        if mode.kind is Kind.SEMAPHORE:
            return await self._semaphores.acquire(attempt, timeout)
        if mode.kind is Kind.BARRIER:
            return await self._rounds.acquire(attempt, timeout)
        for _ in range(_ATTEMPTS):
            asked = self._runtime.now()
            place, children = await self._queue.enter(attempt, timeout)
            if children is None:
                return Busy()
            # A node of an ended session does not count, even if a server still lists it.
            if place.ended or place.node not in children:
                self._hub.forget(attempt)  # removed, with the whole lock or its session: to the end of the queue
                continue
            await self._queue.check_kind(attempt, children, place.node, timeout)
            before = layout.blocking(children, place.node, mode)
            if before is None:
                return self._hub.granted(place, asked)
            place.awaited = (Predecessor(f"{place.parent}/{before}"),)
            return Busy()
        raise RequestFailed("the node of this claim is removed as soon as it is created", may_have_happened=False)

    def contender(self, attempt: SimpleAttempt, timeout: float) -> ZooKeeperContender:
        return ZooKeeperContender(self._requester, self._queue, attempt, timeout)

    def watch(self, name: str) -> ZooKeeperListener:
        """The first of the contenders holds the lock."""
        path = names.path(self._base, name)
        return ZooKeeperListener(self._requester, path, self._connected, watch_contenders)

    async def _connected(self) -> Connection:
        self._reopen()
        return await self._requester.connected(None, ARM_WITHIN)

    # -- holding ---------------------------------------------------------------------------------------------------

    async def renew(self, attempt: SimpleAttempt, ttl: float, timeout: float) -> Found:
        self._reopen()
        (answer,) = await Renewal(self._requester, timeout).run([attempt], ttl)
        if isinstance(answer, RequestFailed):
            raise answer
        return answer

    async def release(self, attempt: SimpleAttempt, timeout: float) -> Found:
        place = self._hub.place(attempt)
        if place is None:
            return Found.GONE
        if not place.ended:
            await self._requester.reconnected(place.connection, timeout)
        if place.ended:
            self._hub.forget(attempt)
            return Found.ENDED
        found = await self._requester.delete_all(place.connection, place.paths, timeout)
        self._hub.forget(attempt)
        return Found.OURS if found == len(place.paths) else Found.GONE

    async def resize(self, name: str, size: int, timeout: float, request: str = "") -> None:
        self._reopen()
        await self._semaphores.resize(name, size, timeout)

    # -- rounds of a barrier ---------------------------------------------------------------------------------------

    async def gathering(self, name: str, attempt: SimpleAttempt | None, timeout: float) -> Gathering:
        self._reopen()
        return await self._rounds.gathering(name, attempt, timeout)

    async def open_round(self, attempt: SimpleAttempt, members: Sequence[str], timeout: float) -> None:
        await self._rounds.open(attempt, members, timeout)

    async def end_round(self, name: str, timeout: float) -> None:
        self._reopen()
        await self._rounds.end(name, timeout)

    # -- operators -------------------------------------------------------------------------------------------------

    async def inspect(self, name: str, timeout: float) -> LockState:
        self._reopen()
        return await self._operators.inspect(name, timeout)

    def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        self._reopen()
        return self._operators.names(prefix, timeout)

    async def break_(self, name: str, timeout: float, token: int | None = None) -> bool:
        self._reopen()
        return await self._operators.break_(name, timeout, token)

    async def ping(self, timeout: float) -> None:
        self._reopen()
        await self._operators.ping(timeout)
