"""The ZooKeeper engine at work, on Curator's layout: each contender is a node, and the first of them holds the lock.

Written once for sync and async. Requests of one session are answered in order, so what belongs together is sent
together: an uncontended acquire is one flight of two requests, a release one request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from holdfast._runtime.base import Runtime
from holdfast.engines.base import (
    Busy,
    Claim,
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

#: A place may be lost again and again while it is being taken, but not for ever.
_ATTEMPTS: Final = 5


class ZooKeeperSession(HubMember):
    """See :class:`holdfast.engines.base.Session`."""

    registers = None

    def __init__(self, hub: Hub, runtime: Runtime, base: str, current: Callable[[], Hub] | None = None) -> None:
        super().__init__(hub, runtime, base, current)
        self._operators = Operators(self._asker, base)

    # -- acquiring -------------------------------------------------------------------------------------------------

    def attempt(self, claim: Claim) -> SimpleAttempt:
        return SimpleAttempt(claim)

    async def acquire(self, attempt: SimpleAttempt, timeout: float) -> Granted | Busy:
        self._reopen()
        for _ in range(_ATTEMPTS):
            asked = self._runtime.now()
            place, children = await self._take_place(attempt, timeout)
            if children is None:
                return Busy()
            # What a new session sees of an old one's nodes counts for nothing, also where a server still shows them.
            before = None if place.over else order.position(children, place.node)
            if before == 0:
                # A server with other limits may have shortened the session while this one waited.
                ttl = min(place.ttl, place.connection.negotiated)
                self._hub.held(place)
                return Granted(place.czxid, ttl, self._hub.slack_of(place, ttl, asked))
            if before is not None:
                place.front = order.predecessor(children, place.node)
                return Busy()
            self._hub.forget(attempt)  # removed, with the whole lock or its session: to the end of the queue
        raise RequestFailed("the node of this claim is removed as soon as it is made", may_have_happened=False)

    async def _take_place(self, attempt: SimpleAttempt, timeout: float) -> tuple[Place, Sequence[str] | None]:
        """The claim's place in line and who is there; None if nothing has happened there since the last look."""
        place = self._hub.place(attempt)
        if place is not None and not place.over:
            if place.is_asleep(self._runtime.now()):
                return place, None
            await self._asker.reconnected(place.connection, timeout)
            if not place.over:
                return place, await self._line.look(place, timeout)
        self._hub.forget(attempt)  # its node has gone with its session
        connection = await self._asker.connected(attempt.claim.ttl, timeout)
        return await self._line.join(connection, attempt, timeout)

    def contender(self, attempt: SimpleAttempt, timeout: float) -> ZooKeeperContender:
        return ZooKeeperContender(self._asker, self._line, attempt, timeout)

    # -- holding ---------------------------------------------------------------------------------------------------

    async def renew(self, attempt: SimpleAttempt, ttl: float, timeout: float) -> Found:
        self._reopen()
        (answer,) = await Renewal(self._asker, timeout).run([attempt], ttl)
        if isinstance(answer, RequestFailed):
            raise answer
        return answer

    async def release(self, attempt: SimpleAttempt, timeout: float) -> Found:
        place = self._hub.place(attempt)
        if place is None:
            return Found.GONE
        if not place.over:
            await self._asker.reconnected(place.connection, timeout)
        if place.over:
            self._hub.forget(attempt)
            return Found.ENDED
        found = await self._asker.delete(place.connection, place.path, timeout)
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
