"""The ZooKeeper engine at work, on Curator's layout: each contender is a node, and the first of them holds the lock.

Written once for both colours. Requests of one session are answered in order, so what belongs together is sent together:
an uncontended acquire is one flight of two requests, a release one request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from holdfast._runtime.base import Runtime, Wakeup
from holdfast.engines.base import (
    Busy,
    Claim,
    Found,
    Granted,
    LockState,
    RequestFailed,
    Suspects,
    Withdrawn,
)
from holdfast.engines.zookeeper import order
from holdfast.engines.zookeeper.contender import ZooKeeperContender
from holdfast.engines.zookeeper.hub import Hub
from holdfast.engines.zookeeper.operators import Operators
from holdfast.engines.zookeeper.place import Place
from holdfast.engines.zookeeper.queue import LockQueue
from holdfast.engines.zookeeper.renewal import Renewal
from holdfast.engines.zookeeper.requests import Requester
from holdfast.engines.zookeeper.withdrawal import Withdrawal

#: A place may be lost again and again while it is being taken, but not for ever.
_ATTEMPTS: Final = 5
#: How long a client that is closed waits for the servers to hear of it; and then for its threads.
_CLOSE_WITHIN: Final = 0.3
_THREADS: Final = 0.2


class ZooKeeperSession:
    """See :class:`holdfast.engines.base.Session`. ``base``: the path above all locks. ``current``: where to find the
    hub that is in use, if ``hub`` was closed by another session."""

    def __init__(self, hub: Hub, runtime: Runtime, base: str, current: Callable[[], Hub] | None = None) -> None:
        self._closed = False
        self._wakeup: Wakeup | None = None
        self._hub = hub
        self._hub.join(id(self))
        self._current = current
        self._runtime = runtime
        self._requester = Requester(hub, runtime)
        self._queue = LockQueue(self._requester, base)
        self._operators = Operators(self._requester, base)

    def _reopen(self) -> None:
        """Sessions of one engine always share a hub: what one of them has created, another one renews."""
        if self._hub.closed and not self._closed and self._current is not None:
            self._hub = self._requester.hub = self._current()
            self._hub.join(id(self))

    # -- acquiring -------------------------------------------------------------------------------------------------

    async def acquire(self, claim: Claim, timeout: float) -> Granted | Busy:
        self._reopen()
        for _ in range(_ATTEMPTS):
            asked = self._runtime.now()
            place, children = await self._take_place(claim, timeout)
            if children is None:
                return Busy()
            # What a new session sees of an old one's nodes counts for nothing, also where a server still shows them.
            before = None if place.ended else order.position(children, place.node)
            if before == 0:
                # A server with other limits may have shortened the session while this one waited.
                ttl = min(place.ttl, place.connection.negotiated)
                self._hub.held(place)
                return Granted(place.czxid, ttl, self._hub.slack_of(place, ttl, asked))
            if before is not None:
                place.predecessor = order.predecessor(children, place.node)
                return Busy()
            self._hub.forget(claim)  # removed by somebody, with the whole lock or its session: to the back of the line
        raise RequestFailed("the node of this claim is removed as soon as it is made", may_have_happened=False)

    async def _take_place(self, claim: Claim, timeout: float) -> tuple[Place, Sequence[str] | None]:
        """The claim's place in line and who is there; None if nothing has happened there since the last look."""
        place = self._hub.place(claim)
        if place is not None and not place.ended:
            if place.is_waiting(self._runtime.now()):
                return place, None
            await self._requester.reconnected(place.connection, timeout)
            if not place.ended:
                return place, await self._queue.look(place, timeout)
        self._hub.forget(claim)  # its node has gone with its session
        connection = await self._requester.connected(claim.ttl, timeout)
        return await self._queue.join(connection, claim, timeout)

    def contender(self, claim: Claim, timeout: float) -> ZooKeeperContender:
        return ZooKeeperContender(self._requester, self._queue, claim, timeout)

    # -- holding ---------------------------------------------------------------------------------------------------

    async def renew(self, claims: Sequence[Claim], ttl: float, timeout: float) -> Sequence[Found | RequestFailed]:
        self._reopen()
        return await Renewal(self._requester, timeout).run(claims, ttl)

    async def release(self, claim: Claim, timeout: float) -> Found:
        place = self._hub.place(claim)
        if place is None:
            return Found.GONE
        if not place.ended:
            await self._requester.reconnected(place.connection, timeout)
        if place.ended:
            self._hub.forget(claim)
            return Found.ENDED
        found = await self._requester.delete(place.connection, place.path, timeout)
        self._hub.forget(claim)
        return Found.OURS if found else Found.GONE

    async def withdraw(self, claims: Sequence[Claim], timeout: float) -> Sequence[Withdrawn]:
        self._reopen()
        return await Withdrawal(self._requester, self._queue, timeout).run(claims)

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

    # -- life ------------------------------------------------------------------------------------------------------

    async def doze(self, until: float, wakeup: Wakeup) -> Suspects:
        self._reopen()
        hints = self._hub.hints(wakeup)
        self._wakeup = wakeup
        if not hints:
            await wakeup.wait(until)
        suspects = set()
        while hints:  # others add to it meanwhile
            suspects.add(hints.pop())
        return suspects

    async def close(self) -> None:
        """The other session of this client is closed with it: the core has no more use for either."""
        if self._leave() is None:
            return  # the client was opened anew, on another event loop: what is shared goes on
        connections = self._hub.close()
        if not await self._requester.wait_until_ended(connections, self._runtime.now() + _CLOSE_WITHIN):
            for connection in connections:
                connection.break_connection()
            await self._requester.wait_until_ended(connections, self._runtime.now() + _THREADS)

    def _leave(self) -> tuple[int, ...] | None:
        self._closed = True
        if self._wakeup is not None:
            self._hub.no_more_hints(self._wakeup)
        return self._hub.leave(id(self))

    def __del__(self) -> None:
        # A client that was not closed, and that held nothing: kazoo's threads would go on for ever.
        if hasattr(self, "_hub") and self._leave() == ():
            self._hub.close()
