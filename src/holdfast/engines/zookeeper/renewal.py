"""Renewal: one request to the leader per ZooKeeper session, for any number of locks.

The session's pings do not count: a server answers them by itself, also when it has lost the leader. In addition, a node
without a watch is read with one: from then on the servers report its removal.
"""

from __future__ import annotations

from collections.abc import Sequence

from kazoo.exceptions import NoNodeError

from holdfast.engines.base import Found, RequestFailed, SimpleAttempt
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.hub import unconfirmed_for
from holdfast.engines.zookeeper.place import Place
from holdfast.engines.zookeeper.reply import Reply
from holdfast.engines.zookeeper.requests import ROUNDING, Requester
from holdfast.errors import EngineRefused, UsageError


class Renewal:
    """One round of renewal."""

    def __init__(self, requester: Requester, timeout: float) -> None:
        self._requester = requester
        self._timeout = timeout
        self._began = requester.runtime.now()
        self._asked: dict[Connection, Reply] = {}
        self._known: dict[Connection, float] = {}  # from when the leader counts, if it answers that
        self._looks: dict[Place, list[tuple[str, Reply]]] = {}
        self._failures: dict[Connection, RequestFailed | None] = {}

    async def run(self, attempts: Sequence[SimpleAttempt], ttl: float) -> Sequence[Found | RequestFailed]:
        places = [self._requester.hub.place(attempt) for attempt in attempts]
        for attempt, place in zip(attempts, places, strict=True):
            if place is not None:
                if ttl > place.ttl + ROUNDING:
                    raise UsageError(
                        f"a lease cannot be renewed to {ttl:g} s: its session ends after {place.ttl:g} s",
                        name=attempt.claim.name,
                    )
                self._ask(place)
        for connection, reply in self._asked.items():
            self._failures[connection] = await self._outcome(connection, reply)
        return [Found.ENDED if place is None else await self._found(place) for place in places]

    def _ask(self, place: Place) -> None:
        connection = place.connection
        if place.ended or not connection.connected:
            return
        if connection not in self._asked:
            self._asked[connection] = self._requester.reply()
            self._known[connection] = connection.heartbeat.known(self._requester.runtime.now())
            connection.sync(place.parent, self._asked[connection].receiver)
        for path in self._requester.hub.watch(place):
            look = self._requester.reply()
            self._looks.setdefault(place, []).append((path, look))
            connection.watch(path, look.receiver)

    async def _outcome(self, connection: Connection, reply: Reply) -> RequestFailed | None:
        try:
            await self._requester.confirm(connection, reply, self._timeout)
        except RequestFailed as failure:
            return failure
        except EngineRefused as refusal:
            return RequestFailed(str(refusal), may_have_happened=False)
        if connection.negotiated < connection.timeout - ROUNDING:
            # Another server with other limits: the deadline must not exceed what is left.
            return RequestFailed("the servers have shortened the session", may_have_happened=False)
        silence = unconfirmed_for(self._began, self._known[connection], connection.negotiated)
        if silence > self._requester.hub.slack(connection.negotiated):
            # This process was frozen, or the server did not answer for long: the leader may count from before that.
            return RequestFailed(
                "ZooKeeper's leader may have received nothing from us for too long", may_have_happened=False
            )
        return None

    async def _found(self, place: Place) -> Found | RequestFailed:
        failure = self._failures.get(place.connection, _NOT_CONNECTED)
        gone = False
        for path, look in self._looks.get(place, ()):
            try:
                await self._requester.answer(place.connection, look, self._timeout if failure is None else 0.0)
            except NoNodeError:
                place.connection.watches.fire(path)
                gone = True
            except EngineRefused:
                self._requester.hub.unwatchable(place, path)  # the node exists: a missing one is not refused
            except RequestFailed as error:
                place.connection.watches.fire(path)  # it is unknown whether the watch is set
                failure = failure or RequestFailed(str(error), may_have_happened=False)
        if gone:  # of several permits one is enough
            return Found.ENDED if place.ended else Found.GONE
        if place.ended:
            return Found.ENDED
        return Found.OURS if failure is None else failure


_NOT_CONNECTED = RequestFailed("ZooKeeper is not connected at present", may_have_happened=False)
