"""Barriers, as Curator's DistributedDoubleBarrier lays them out: each member is a node, and ``ready`` exists while a
round is open.

Curator lets everything in that comes while a round is open. Here such a member waits for the next one: its node must be
older than ``ready``. A node that was created too late, because a server that lags behind did not show ``ready``, is
removed again. That can be decided afterwards, since a session reads its own writes, and all that was written before.

``ready`` is created in one step with checks that all members that were counted are there, so none has given up in the
meantime; and removed in one step with the node above, which succeeds only if it has no members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kazoo.exceptions import NoNodeError

from holdfast.engines.base import Busy, Granted, RequestFailed, SimpleAttempt
from holdfast.engines.optional_sessions import Gathering
from holdfast.engines.zookeeper import layout, metadata
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.obstacles import Size
from holdfast.engines.zookeeper.place import Place
from holdfast.engines.zookeeper.queue import LockQueue, id_of
from holdfast.engines.zookeeper.requests import Requester
from holdfast.errors import EngineRefused

#: The path may be removed while it is being created; a claim gives up after this many times.
_ATTEMPTS: Final = 5


class _Look(NamedTuple):
    children: Sequence[str]
    ready: Any  #: its stat; None if there is no such node


class Rounds:
    """The barriers of one session."""

    def __init__(self, requester: Requester, queue: LockQueue) -> None:
        self._requester = requester
        self._queue = queue

    # -- becoming a member -----------------------------------------------------------------------------------------

    async def acquire(self, attempt: SimpleAttempt, timeout: float) -> Granted | Busy:
        runtime, path = self._requester.runtime, self._queue.path(attempt.claim.name)
        until = runtime.now() + timeout
        for _ in range(_ATTEMPTS):
            place = await self._place(attempt, path, until - runtime.now())
            if place.is_waiting(runtime.now()):
                return Busy()
            place.awaited, place.changed = (), None
            if not place.token and not place.granting:  # else its node exists, or may exist
                look = await self._look(place.connection, path, until - runtime.now())
                await self._queue.check_kind(attempt, look.children, None, until - runtime.now())
                if look.ready is not None and layout.members(look.children):
                    place.awaited = (Size(layout.ready(path), look.ready.mzxid),)
                    return Busy()
                if look.ready is not None:  # left behind by members that have died
                    await self._end(place.connection, path, until - runtime.now())
            granted = await self._join(attempt, place, path, until - runtime.now())
            if granted is not None:
                return granted
        raise RequestFailed("the node of this claim is removed as soon as it is created", may_have_happened=False)

    async def _place(self, attempt: SimpleAttempt, path: str, timeout: float) -> Place:
        """The claim's place. Its node has a name that is known beforehand, and need not exist yet."""
        requester, claim = self._requester, attempt.claim
        place = requester.hub.place(attempt)
        if place is not None and not place.ended:
            await requester.reconnected(place.connection, timeout)
            if not place.ended:
                return place
        requester.hub.forget(attempt)
        connection = await requester.connected(claim.ttl, timeout)
        if connection.session is None:
            raise RequestFailed("the session has just ended", may_have_happened=False)
        node = f"{path}/{layout.member(id_of(attempt), claim.mode.size)}"
        place = Place(claim.name, connection, connection.session, connection.negotiated, (node,), 0)
        place.granting = attempt.unresolved
        requester.hub.settle(attempt, place)
        return place

    async def _join(self, attempt: SimpleAttempt, place: Place, path: str, timeout: float) -> Granted | None:
        """Create the node, if it is not there. None: look again."""
        requester, connection = self._requester, place.connection
        data, asked = metadata.describe(attempt.claim, connection.negotiated), requester.runtime.now()
        known = connection.heartbeat.known(asked)
        created, own, ready, listed = (requester.reply() for _ in range(4))
        place.granting = True  # until it is answered, the node may exist
        connection.multi([connection.ephemeral(place.path, data)], created.receiver)
        connection.get(place.path, own.receiver)
        connection.stat(layout.ready(path), ready.receiver)
        connection.children(path, listed.receiver)
        left = await requester.wait_for_last(listed, timeout)
        refused = await requester.outcome(connection, created, left)
        try:
            _, stat = await requester.read(connection, own, left)
        except NoNodeError:
            place.granting = False
            if refused is not None:  # the path is missing
                await self._queue.make_path(connection, path, left)
            return None
        opened = await requester.answer(connection, ready, left)
        late = opened is not None and opened.czxid < stat.czxid
        if late or stat.ephemeralOwner != place.session:
            await requester.delete(connection, place.path, left)
            place.granting = False
            return None
        await self._queue.check_kind(attempt, await requester.answer(connection, listed, left), None, left)
        place = replace(place, token=stat.czxid, granting=False, confirmed=asked, counted=known, watched=set())
        requester.hub.settle(attempt, place)
        return requester.hub.granted(place, asked)

    # -- rounds ----------------------------------------------------------------------------------------------------

    async def gathering(self, name: str, attempt: SimpleAttempt | None, timeout: float) -> Gathering:
        path = self._queue.path(name)
        connection = await self._requester.connected(None, timeout)
        connection.sync(path, self._requester.reply().receiver)  # a server may lag behind
        children, ready = await self._look(connection, path, timeout)
        members = layout.members(children)
        parties = {number for each in members if (number := layout.parties(each)) is not None}
        if len(parties) > 1:
            first = await self._parties_of_first(connection, path, members, timeout)
            members = [each for each in members if layout.parties(each) in (None, first)]
        else:
            first = next(iter(parties), None)
        place = None if attempt is None else self._requester.hub.place(attempt)
        present = attempt is None or (place is not None and not place.ended and place.node in children)
        return Gathering(None if ready is None else ready.czxid, members, first, present)

    async def _parties_of_first(
        self, connection: Connection, path: str, members: Sequence[str], timeout: float
    ) -> int | None:
        """Members do not agree about their number: the first of ours decides, and the others are refused."""
        asked = [(layout.parties(each), self._requester.reply(), each) for each in members]
        for _, reply, each in asked:
            connection.stat(f"{path}/{each}", reply.receiver)
        left = await self._requester.wait_for_last(asked[-1][1], timeout)
        stats = [(await self._requester.answer(connection, reply, left), parties) for parties, reply, _ in asked]
        found = [(stat.czxid, parties) for stat, parties in stats if stat is not None and parties is not None]
        return min(found)[1] if found else None

    async def open(self, attempt: SimpleAttempt, members: Sequence[str], timeout: float) -> None:
        """What is refused has happened already, or a member is gone: the caller looks again."""
        place = self._requester.hub.place(attempt)
        if place is None or place.ended:
            return  # the membership is lost, which the caller's lease knows
        connection, path = place.connection, place.parent
        operations = [connection.check(f"{path}/{member}") for member in members]
        opened = self._requester.reply()
        connection.multi([*operations, connection.persistent(layout.ready(path), b"")], opened.receiver)
        await self._requester.outcome(connection, opened, timeout)

    async def end(self, name: str, timeout: float) -> None:
        connection = await self._requester.connected(None, timeout)
        await self._end(connection, self._queue.path(name), timeout)

    async def _end(self, connection: Connection, path: str, timeout: float) -> None:
        requester, ended = self._requester, self._requester.reply()
        ready = layout.ready(path)
        connection.multi([connection.removal(ready), connection.removal(path)], ended.receiver)
        try:
            await requester.outcome(connection, ended, timeout)
        except EngineRefused:  # no right to remove the path; a member that comes at this moment may be let in alone
            await requester.delete(connection, ready, timeout)

    async def _look(self, connection: Connection, path: str, timeout: float) -> _Look:
        """The mark of an open round first: a member that is listed after it was there when the round was opened. In the
        other order, a node could be removed, and a round opened without it, in between."""
        requester, ready, listed = self._requester, self._requester.reply(), self._requester.reply()
        connection.stat(layout.ready(path), ready.receiver)
        connection.children(path, listed.receiver)
        left = await requester.wait_for_last(listed, timeout)
        try:
            children = list(await requester.answer(connection, listed, left))
        except NoNodeError:
            children = []
        return _Look(children, await requester.answer(connection, ready, left))
