"""The line of a lock: taking a place in it, finding it again, looking who is there, leaving."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

from kazoo.exceptions import NodeExistsError, NoNodeError

from holdfast.engines.base import RequestFailed, SimpleAttempt
from holdfast.engines.zookeeper import metadata, names, order
from holdfast.engines.zookeeper.asking import Asker
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.place import Place
from holdfast.errors import EngineRefused

#: A node is named after its claim, so that it can be found again: this makes a UUID of the claim's owner.
_CLAIMS: Final = uuid.UUID("6f1d9b0e-3f0c-5c55-9d49-0d6b3a8f9c11")
#: The path above a lock may vanish again and again while it is being made, but not for ever.
_ATTEMPTS: Final = 5


class Line:
    """``base``: the path above all locks."""

    def __init__(self, asker: Asker, base: str) -> None:
        self._asker = asker
        self._base = base

    def path(self, name: str) -> str:
        return names.path(self._base, name)

    async def join(self, connection: Connection, attempt: SimpleAttempt, timeout: float) -> tuple[Place, Sequence[str]]:
        """Create the claim's node, and see who else is there. One that a lost answer left behind is found again."""
        if attempt.unresolved and (place := await self.find(connection, attempt, timeout)) is not None:
            return place, await self.look(place, timeout)
        path, asker = self.path(attempt.claim.name), self._asker
        data = metadata.describe(attempt.claim, connection.negotiated)
        for _ in range(_ATTEMPTS):
            created, listed, asked = asker.reply(), asker.reply(), asker.runtime.now()
            known = connection.pulse.known(asked)
            connection.create(f"{path}/{order.protected(id_of(attempt))}", data, created.address)
            connection.children(path, listed.address)
            left = await asker.arrival(listed, timeout)
            try:
                node, stat = await asker.answer(connection, created, left)
            except NoNodeError:
                await self._make_path(connection, path, timeout)
                continue
            place = self._settle(connection, attempt, node, stat)
            place.confirmed, place.counted = asked, known
            if order.is_near_wrap(order.sequence_of(place.node) or 0):
                await self.leave(attempt, timeout)
                raise EngineRefused(f"{path} has numbered nearly 2^31 nodes: remove it while nobody uses it")
            try:
                return place, await asker.answer(connection, listed, left)
            except NoNodeError:
                return place, ()  # removed meanwhile, and the node with it
        raise RequestFailed(f"{path} is removed as soon as it is made", may_have_happened=False)

    async def find(self, connection: Connection, attempt: SimpleAttempt, timeout: float) -> Place | None:
        """The node that an earlier attempt may have created. One of another session is not ours, and is removed; so is
        a second one."""
        path, asker = self.path(attempt.claim.name), self._asker
        connection.sync(path, asker.reply().address)  # a server that lags behind must not hide it
        found: tuple[str, Any] | None = None
        for node in order.find_own(await asker.children(connection, path, timeout), id_of(attempt)):
            try:
                _, stat = await asker.get(connection, f"{path}/{node}", timeout)
            except NoNodeError:
                continue
            if found is None and stat.ephemeralOwner == connection.session:
                found = f"{path}/{node}", stat
            else:
                await asker.delete(connection, f"{path}/{node}", timeout)
        # Not before the others are gone: who has a place does not look for others of its own again.
        return None if found is None else self._settle(connection, attempt, *found)

    def _settle(self, connection: Connection, attempt: SimpleAttempt, node: str, stat: Any) -> Place:
        place = Place(attempt.claim.name, connection, stat.ephemeralOwner, connection.negotiated, node, stat.czxid)
        self._asker.hub.settle(attempt, place)
        return place

    async def look(self, place: Place, timeout: float) -> Sequence[str]:
        """Who is there. If that was long ago, the leader confirms that the session lives: belief counts from there.

        A server that lags behind shows those who have left already, but never hides who was there before us.
        """
        asker, connection, asked = self._asker, place.connection, self._asker.runtime.now()
        synced, listed = None if place.is_confirmed(asked) else asker.reply(), asker.reply()
        known = connection.pulse.known(asked)
        if synced is not None:
            connection.sync(place.parent, synced.address)
        connection.children(place.parent, listed.address)
        left = await asker.arrival(listed, timeout)
        if synced is not None:
            await asker.confirm(connection, synced, left)
            place.confirmed, place.counted = asked, known
        try:
            return list(await asker.answer(connection, listed, left))
        except NoNodeError:
            return ()

    async def leave(self, attempt: SimpleAttempt, timeout: float) -> None:
        """Give up the claim's place. What cannot be removed now is removed later."""
        hub = self._asker.hub
        place = hub.place(attempt)
        hub.forget(attempt)
        if place is None or place.over:
            return
        removed = False
        try:
            if place.connection.connected:
                await self._asker.delete(place.connection, place.path, timeout)
                removed = True
        except (RequestFailed, EngineRefused):
            pass
        finally:  # also if it is cancelled or interrupted here
            if not removed:
                hub.leftovers.add(place.connection, place.parent, id_of(attempt))

    async def _make_path(self, connection: Connection, path: str, timeout: float) -> None:
        """Containers: the servers remove them when they are empty.

        From the lowest on upwards, as far as need be: above it, nothing may be allowed to us.
        """
        missing = [path]
        for _ in range(_ATTEMPTS * (1 + path.count("/"))):
            created = self._asker.reply()
            connection.create_container(missing[-1], created.address)
            try:
                await self._asker.answer(connection, created, timeout)
            except NodeExistsError:
                pass
            except NoNodeError:
                missing.append(missing[-1].rpartition("/")[0])
                continue
            missing.pop()
            if not missing:
                return


def id_of(attempt: SimpleAttempt) -> str:
    """What its node is found by."""
    return str(uuid.uuid5(_CLAIMS, attempt.claim.owner))
