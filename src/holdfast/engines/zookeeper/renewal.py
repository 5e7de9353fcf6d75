"""Renewing what is held: one question to the leader for each session, however many locks it carries.

The session's pings do not count: a server answers them by itself, also when it has lost the leader. Beside that
question a node is looked at if nobody watches it yet, or any more: from then on the servers tell if it is removed.
"""

from __future__ import annotations

from collections.abc import Sequence

from kazoo.exceptions import NoNodeError

from holdfast.engines.base import Found, RequestFailed, SimpleAttempt
from holdfast.engines.zookeeper.asking import ROUNDING, Asker
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.hub import unheard
from holdfast.engines.zookeeper.place import Place
from holdfast.engines.zookeeper.reply import Reply
from holdfast.errors import EngineRefused, UsageError


class Renewal:
    """One round."""

    def __init__(self, asker: Asker, timeout: float) -> None:
        self._asker = asker
        self._timeout = timeout
        self._began = asker.runtime.now()
        self._asked: dict[Connection, Reply] = {}
        self._known: dict[Connection, float] = {}  # since when the leader counts, if it answers that
        self._looks: dict[Place, Reply] = {}
        self._failures: dict[Connection, RequestFailed | None] = {}

    async def run(self, attempts: Sequence[SimpleAttempt], ttl: float) -> Sequence[Found | RequestFailed]:
        places = [self._asker.hub.place(attempt) for attempt in attempts]
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
        if place.over or not connection.connected:
            return
        if connection not in self._asked:
            self._asked[connection] = self._asker.reply()
            self._known[connection] = connection.pulse.known(self._asker.runtime.now())
            connection.sync(place.parent, self._asked[connection].address)
        if self._asker.hub.watch(place):
            self._looks[place] = self._asker.reply()
            connection.watch(place.path, self._looks[place].address)

    async def _outcome(self, connection: Connection, reply: Reply) -> RequestFailed | None:
        try:
            await self._asker.confirm(connection, reply, self._timeout)
        except RequestFailed as failure:
            return failure
        except EngineRefused as refusal:
            return RequestFailed(str(refusal), may_have_happened=False)
        if connection.negotiated < connection.timeout - ROUNDING:
            # Another server with other limits: belief must not count on more than what is left.
            return RequestFailed("the servers have shortened the session", may_have_happened=False)
        silence = unheard(self._began, self._known[connection], connection.negotiated)
        if silence > self._asker.hub.slack(connection.negotiated):
            # We were frozen, or the server did not answer for long: the leader may count from before that.
            return RequestFailed("ZooKeeper's leader may not have heard of us for too long", may_have_happened=False)
        return None

    async def _found(self, place: Place) -> Found | RequestFailed:
        failure = self._failures.get(place.connection, _NOT_CONNECTED)
        look = self._looks.get(place)
        if look is not None:
            try:
                await self._asker.answer(place.connection, look, self._timeout if failure is None else 0.0)
            except NoNodeError:
                place.connection.watches.fire(place.path)
                return Found.ENDED if place.over else Found.GONE
            except EngineRefused:
                self._asker.hub.unwatchable(place)  # but it is there: nobody is refused what is not
            except RequestFailed as error:
                place.connection.watches.fire(place.path)  # nobody knows whether the watch is set
                failure = failure or RequestFailed(str(error), may_have_happened=False)
        if place.over:
            return Found.ENDED
        return Found.OURS if failure is None else failure


_NOT_CONNECTED = RequestFailed("ZooKeeper is not connected at present", may_have_happened=False)
