"""ZooKeeper's locks as the callers of one client use them: each contender is a node, and the first one holds the lock.

Written once for sync and async. Requests of one ZooKeeper session are answered in order, so requests that belong
together are pipelined: an uncontended acquire is two pipelined requests, a release is one request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from holdfast._runtime.base import Runtime
from holdfast.engines.base import (
    Busy,
    Found,
    Granted,
    LockState,
    RequestFailed,
    SimpleAttempt,
)
from holdfast.engines.zookeeper import order
from holdfast.engines.zookeeper.contender import ZooKeeperContender
from holdfast.engines.zookeeper.hub import Hub
from holdfast.engines.zookeeper.member import HubMember
from holdfast.engines.zookeeper.operators import Operators
from holdfast.engines.zookeeper.place import Place
from holdfast.engines.zookeeper.renewal import Renewal

#: A claim's node may be removed right after its creation; the claim gives up after this many times.
_ATTEMPTS: Final = 5


class ZooKeeperSession(HubMember):
    """See :class:`holdfast.engines.base.Session`."""

    attempt = SimpleAttempt
    registers = None

    def __init__(self, hub: Hub, runtime: Runtime, base: str, current: Callable[[], Hub] | None = None) -> None:
        super().__init__(hub, runtime, base, current)
        self._operators = Operators(self._requester, base)

    # -- acquiring -------------------------------------------------------------------------------------------------

    async def acquire(self, attempt: SimpleAttempt, timeout: float) -> Granted | Busy:
        self._reopen()
        for _ in range(_ATTEMPTS):
            asked = self._runtime.now()
            place, children = await self._take_place(attempt, timeout)
            if children is None:
                return Busy()
            # A node of an ended session does not count, even if a server still lists it.
            before = None if place.ended else order.position(children, place.node)
            if before == 0:
                # A server with other limits may have shortened the session while this one waited.
                ttl = min(place.ttl, place.connection.negotiated)
                self._hub.held(place)
                return Granted(place.czxid, ttl, self._hub.slack_of(place, ttl, asked))
            if before is not None:
                place.predecessor = order.predecessor(children, place.node)
                return Busy()
            self._hub.forget(attempt)  # removed, with the whole lock or its session: to the end of the queue
        raise RequestFailed("the node of this claim is removed as soon as it is created", may_have_happened=False)

    async def _take_place(self, attempt: SimpleAttempt, timeout: float) -> tuple[Place, Sequence[str] | None]:
        """The claim's place in the queue and its nodes; None for the nodes if nothing changed since the last look."""
        place = self._hub.place(attempt)
        if place is not None and not place.ended:
            if place.is_waiting(self._runtime.now()):
                return place, None
            await self._requester.reconnected(place.connection, timeout)
            if not place.ended:
                return place, await self._queue.look(place, timeout)
        self._hub.forget(attempt)  # its node ended with its session
        connection = await self._requester.connected(attempt.claim.ttl, timeout)
        return await self._queue.join(connection, attempt, timeout)

    def contender(self, attempt: SimpleAttempt, timeout: float) -> ZooKeeperContender:
        return ZooKeeperContender(self._requester, self._queue, attempt, timeout)

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
        found = await self._requester.delete(place.connection, place.path, timeout)
        self._hub.forget(attempt)
        return Found.OURS if found else Found.GONE

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
