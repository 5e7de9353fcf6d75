"""The queue of a lock: joining it, finding one's node again, reading it, leaving it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.exceptions import NodeExistsError, NoNodeError

from holdfast.engines.base import RequestFailed, SimpleAttempt, wrong_kind
from holdfast.engines.zookeeper import layout, metadata, names, order
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.nesting import NestedAttempt
from holdfast.engines.zookeeper.place import Place
from holdfast.engines.zookeeper.requests import Requester
from holdfast.errors import EngineRefused

#: Namespace for the UUID of a claim's owner. A node's name contains that UUID, so that it can be found again.
_CLAIMS: Final = uuid.UUID("6f1d9b0e-3f0c-5c55-9d49-0d6b3a8f9c11")
#: The path above a lock may be removed while it is being created; the attempt gives up after this many times.
_ATTEMPTS: Final = 5

#: Sends further requests, right after the one that reads the queue.
Also = Callable[[Connection], None]


class LockQueue:
    """``base``: the path above all locks."""

    def __init__(self, requester: Requester, base: str) -> None:
        self._requester = requester
        self._base = base

    def path(self, name: str) -> str:
        return names.path(self._base, name)

    # -- entering --------------------------------------------------------------------------------------------------

    async def enter(
        self, attempt: SimpleAttempt, timeout: float, also: Also | None = None
    ) -> tuple[Place, Sequence[str] | None]:
        """The claim's place in the queue and its nodes; None for the nodes if nothing changed since the last look."""
        requester, hub = self._requester, self._requester.hub
        place = hub.place(attempt)
        if place is not None and not place.ended:
            if place.is_waiting(requester.runtime.now()):
                return place, None
            await requester.reconnected(place.connection, timeout)
            if not place.ended:
                return place, await self.look(place, timeout, also)
        hub.forget(attempt)  # its node ended with its session
        connection = await requester.connected(attempt.claim.ttl, timeout)
        return await self._join(connection, attempt, timeout, also)

    async def _join(
        self, connection: Connection, attempt: SimpleAttempt, timeout: float, also: Also | None
    ) -> tuple[Place, Sequence[str]]:
        """Create the claim's node, and read the queue. A node whose creation was not answered is found again."""
        if attempt.unresolved and (place := await self._find(connection, attempt, timeout)) is not None:
            return place, await self.look(place, timeout, also)
        if isinstance(attempt, NestedAttempt) and (place := await self._nest(connection, attempt, timeout)) is not None:
            return place, await self.look(place, timeout, also)
        claim, requester = attempt.claim, self._requester
        path, kind = self.path(claim.name), claim.mode.kind
        queue, data = layout.queue(path, kind), metadata.describe(claim, connection.negotiated)
        for _ in range(_ATTEMPTS):
            created, listed, asked = requester.reply(), requester.reply(), requester.runtime.now()
            known = connection.heartbeat.known(asked)
            connection.create(f"{queue}/{layout.contender(id_of(attempt), claim.mode)}", data, created.receiver)
            connection.children(queue, listed.receiver)
            if also is not None:
                also(connection)
            left = await requester.wait_for_last(listed, timeout)
            try:
                node, stat = await requester.answer(connection, created, left)
            except NoNodeError:
                if queue != path:  # a claim that is refused leaves nothing behind
                    await self.check_kind(attempt, await requester.children(connection, path, timeout), None, timeout)
                await self.make_path(connection, queue, timeout)
                continue
            place = self._settle(connection, attempt, node, stat)
            place.confirmed, place.counted = asked, known
            if order.is_near_wrap(order.sequence_of(place.node, layout.markers(kind)) or 0):
                await self.leave(attempt, timeout)
                raise EngineRefused(f"{queue} has numbered nearly 2^31 nodes: remove it while it is not in use")
            try:
                return place, await requester.answer(connection, listed, left)
            except NoNodeError:
                return place, ()  # the path was removed in the meantime, and the node with it
        raise RequestFailed(f"{queue} is removed as soon as it is created", may_have_happened=False)

    async def _nest(self, connection: Connection, attempt: NestedAttempt, timeout: float) -> Place | None:
        """Create the node of a read inside a write, in one step with the check that the write still holds. None if it
        does not."""
        write, requester = attempt.write, self._requester
        if write.ended or write.connection is not connection:
            return None
        data = metadata.describe(attempt.claim, connection.negotiated, token=write.token)
        created, asked = requester.reply(), requester.runtime.now()
        known, path = connection.heartbeat.known(asked), attempt.path(id_of(attempt))
        connection.multi([connection.check(write.path), connection.ephemeral(path, data)], created.receiver)
        if await requester.outcome(connection, created, timeout) is not None:
            return None
        place = Place(
            attempt.claim.name, connection, write.session, connection.negotiated, (path,), write.token, asked, known
        )
        requester.hub.settle(attempt, place)
        return place

    async def _find(self, connection: Connection, attempt: SimpleAttempt, timeout: float) -> Place | None:
        """The node that an earlier request may have created. A node of another session, or a second one, is removed."""
        requester = self._requester
        queue = layout.queue(self.path(attempt.claim.name), attempt.claim.mode.kind)
        connection.sync(queue, requester.reply().receiver)  # a server that lags behind must not hide it
        found: tuple[str, Any] | None = None
        for node in order.find_own(await requester.children(connection, queue, timeout), id_of(attempt)):
            try:
                _, stat = await requester.get(connection, f"{queue}/{node}", timeout)
            except NoNodeError:
                continue
            if found is None and stat.ephemeralOwner == connection.session:
                found = f"{queue}/{node}", stat
            else:
                await requester.delete(connection, f"{queue}/{node}", timeout)
        # Only after the others are removed: a claim that has a place does not search for further nodes again.
        return None if found is None else self._settle(connection, attempt, *found)

    def _settle(self, connection: Connection, attempt: SimpleAttempt, node: str, stat: Any) -> Place:
        if isinstance(attempt, NestedAttempt) and node == attempt.path(id_of(attempt)):
            token = attempt.write.token
        else:
            token = stat.czxid
        place = Place(attempt.claim.name, connection, stat.ephemeralOwner, connection.negotiated, (node,), token)
        self._requester.hub.settle(attempt, place)
        return place

    # -- reading and leaving ---------------------------------------------------------------------------------------

    async def look(self, place: Place, timeout: float, also: Also | None = None) -> Sequence[str]:
        """The nodes of the queue. If the last confirmation is too old, the leader confirms the session again, and the
        deadline counts from there.

        A server that lags behind may list nodes that are gone, but never misses a node that was created before ours.
        """
        requester, connection, asked = self._requester, place.connection, self._requester.runtime.now()
        # A place whose exchange for permits was not answered is as unknown as one that was not confirmed.
        synced = None if place.is_confirmed(asked) and not place.granting else requester.reply()
        listed = requester.reply()
        known = connection.heartbeat.known(asked)
        if synced is not None:
            connection.sync(place.parent, synced.receiver)
        connection.children(place.parent, listed.receiver)
        if also is not None:
            also(connection)
        left = await requester.wait_for_last(listed, timeout)
        if synced is not None:
            await requester.confirm(connection, synced, left)
            place.confirmed, place.counted = asked, known
        try:
            return list(await requester.answer(connection, listed, left))
        except NoNodeError:
            return ()

    async def leave(self, attempt: SimpleAttempt, timeout: float) -> None:
        """Remove the claim's nodes. If that fails, they become leftovers and are removed later."""
        hub = self._requester.hub
        place = hub.place(attempt)
        hub.forget(attempt)
        if place is None or place.ended:
            return
        removed = False
        try:
            if place.connection.connected and not place.granting:
                await self._requester.delete_all(place.connection, place.paths, timeout)
                removed = True
        except (RequestFailed, EngineRefused):
            pass
        finally:  # also if it is cancelled or interrupted
            if not removed:
                self.leave_behind(place.connection, attempt)

    def leave_behind(self, connection: Connection, attempt: SimpleAttempt) -> None:
        """Have the claim's nodes removed as soon as there is a connection."""
        for folder in layout.folders(self.path(attempt.claim.name), attempt.claim.mode.kind):
            self._requester.hub.leftovers.add(connection, folder, id_of(attempt))

    async def check_kind(
        self, attempt: SimpleAttempt, children: Sequence[str], own: str | None, timeout: float
    ) -> None:
        """Leave, and raise EngineRefused, if the children of the object's path, before ``own``, are of another kind."""
        kind = attempt.claim.mode.kind
        number = None if own is None else order.sequence_of(own, layout.markers(kind))
        found = layout.other_kind(children, kind, number)
        if found is not None:
            await self.leave(attempt, timeout)
            raise wrong_kind(attempt.claim.name, kind, found)

    # -- the path --------------------------------------------------------------------------------------------------

    async def make_path(self, connection: Connection, path: str, timeout: float) -> None:
        """Create the path as containers, which the servers remove when they are empty.

        Starts at the lowest node and goes up only as far as needed: an ACL may forbid anything above.
        """
        missing = [path]
        for _ in range(_ATTEMPTS * (1 + path.count("/"))):
            created = self._requester.reply()
            connection.create_container(missing[-1], created.receiver)
            try:
                await self._requester.answer(connection, created, timeout)
            except NodeExistsError:
                pass
            except NoNodeError:
                missing.append(missing[-1].rpartition("/")[0])
                continue
            missing.pop()
            if not missing:
                return


def id_of(attempt: SimpleAttempt) -> str:
    """The UUID in the name of the claim's node."""
    return str(uuid.uuid5(_CLAIMS, attempt.claim.owner))
