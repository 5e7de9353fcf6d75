"""The queue of a lock: joining it, finding one's node again, reading it, leaving it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

from kazoo.exceptions import NodeExistsError, NoNodeError

from holdfast.engines.base import RequestFailed, SimpleAttempt
from holdfast.engines.zookeeper import metadata, names, order
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.place import Place
from holdfast.engines.zookeeper.requests import Requester
from holdfast.errors import EngineRefused

#: Namespace for the UUID of a claim's owner. A node's name contains that UUID, so that it can be found again.
_CLAIMS: Final = uuid.UUID("6f1d9b0e-3f0c-5c55-9d49-0d6b3a8f9c11")
#: The path above a lock may be removed while it is being created; the attempt gives up after this many times.
_ATTEMPTS: Final = 5


class LockQueue:
    """``base``: the path above all locks."""

    def __init__(self, requester: Requester, base: str) -> None:
        self._requester = requester
        self._base = base

    def path(self, name: str) -> str:
        return names.path(self._base, name)

    async def join(self, connection: Connection, attempt: SimpleAttempt, timeout: float) -> tuple[Place, Sequence[str]]:
        """Create the claim's node, and read the queue. A node whose creation was not answered is found again."""
        if attempt.unresolved and (place := await self.find(connection, attempt, timeout)) is not None:
            return place, await self.look(place, timeout)
        path, requester = self.path(attempt.claim.name), self._requester
        data = metadata.describe(attempt.claim, connection.negotiated)
        for _ in range(_ATTEMPTS):
            created, listed, asked = requester.reply(), requester.reply(), requester.runtime.now()
            known = connection.heartbeat.known(asked)
            connection.create(f"{path}/{order.protected(id_of(attempt))}", data, created.receiver)
            connection.children(path, listed.receiver)
            left = await requester.wait_for_last(listed, timeout)
            try:
                node, stat = await requester.answer(connection, created, left)
            except NoNodeError:
                await self._make_path(connection, path, timeout)
                continue
            place = self._settle(connection, attempt, node, stat)
            place.confirmed, place.counted = asked, known
            if order.is_near_wrap(order.sequence_of(place.node) or 0):
                await self.leave(attempt, timeout)
                raise EngineRefused(f"{path} has numbered nearly 2^31 nodes: remove it while it is not in use")
            try:
                return place, await requester.answer(connection, listed, left)
            except NoNodeError:
                return place, ()  # the path was removed in the meantime, and the node with it
        raise RequestFailed(f"{path} is removed as soon as it is created", may_have_happened=False)

    async def find(self, connection: Connection, attempt: SimpleAttempt, timeout: float) -> Place | None:
        """The node that an earlier request may have created. A node of another session, or a second one, is removed."""
        path, requester = self.path(attempt.claim.name), self._requester
        connection.sync(path, requester.reply().receiver)  # a server that lags behind must not hide it
        found: tuple[str, Any] | None = None
        for node in order.find_own(await requester.children(connection, path, timeout), id_of(attempt)):
            try:
                _, stat = await requester.get(connection, f"{path}/{node}", timeout)
            except NoNodeError:
                continue
            if found is None and stat.ephemeralOwner == connection.session:
                found = f"{path}/{node}", stat
            else:
                await requester.delete(connection, f"{path}/{node}", timeout)
        # Only after the others are removed: a claim that has a place does not search for further nodes again.
        return None if found is None else self._settle(connection, attempt, *found)

    def _settle(self, connection: Connection, attempt: SimpleAttempt, node: str, stat: Any) -> Place:
        place = Place(attempt.claim.name, connection, stat.ephemeralOwner, connection.negotiated, node, stat.czxid)
        self._requester.hub.settle(attempt, place)
        return place

    async def look(self, place: Place, timeout: float) -> Sequence[str]:
        """The nodes of the queue. If the last confirmation is too old, the leader confirms the session again, and the
        deadline counts from there.

        A server that lags behind may list nodes that are gone, but never misses a node that was created before ours.
        """
        requester, connection, asked = self._requester, place.connection, self._requester.runtime.now()
        synced, listed = None if place.is_confirmed(asked) else requester.reply(), requester.reply()
        known = connection.heartbeat.known(asked)
        if synced is not None:
            connection.sync(place.parent, synced.receiver)
        connection.children(place.parent, listed.receiver)
        left = await requester.wait_for_last(listed, timeout)
        if synced is not None:
            await requester.confirm(connection, synced, left)
            place.confirmed, place.counted = asked, known
        try:
            return list(await requester.answer(connection, listed, left))
        except NoNodeError:
            return ()

    async def leave(self, attempt: SimpleAttempt, timeout: float) -> None:
        """Remove the claim's node. If that fails, it becomes a leftover and is removed later."""
        hub = self._requester.hub
        place = hub.place(attempt)
        hub.forget(attempt)
        if place is None or place.ended:
            return
        removed = False
        try:
            if place.connection.connected:
                await self._requester.delete(place.connection, place.path, timeout)
                removed = True
        except (RequestFailed, EngineRefused):
            pass
        finally:  # also if it is cancelled or interrupted
            if not removed:
                hub.leftovers.add(place.connection, place.parent, id_of(attempt))

    async def _make_path(self, connection: Connection, path: str, timeout: float) -> None:
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
