"""Semaphores, as Curator's InterProcessSemaphoreV2 lays them out: a queue whose head may count and take permits.

Only the head creates permits ("leases"), so counting and taking cannot be overtaken. All permits of a claim are created
in one step, in exchange for its node in the queue: nothing is provisional, nothing is partial, and a request that
arrives late finds the node gone and has no effect. The queue is strict, so a claim for many is not overtaken by claims
for few.

A server that lags behind may list permits that were returned, but never misses one: if it shows a claim as the head, it
shows what all heads before it have created.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kazoo.exceptions import NodeExistsError, NoNodeError

from holdfast.engines.base import Busy, Granted, Kind, RequestFailed, SimpleAttempt, wrong_kind
from holdfast.engines.zookeeper import layout, metadata, order, permits
from holdfast.engines.zookeeper.connection import Connection, Operation
from holdfast.engines.zookeeper.contender import ZooKeeperContender
from holdfast.engines.zookeeper.obstacles import Leases, Predecessor, Size
from holdfast.engines.zookeeper.permits import Room, StoredSize
from holdfast.engines.zookeeper.place import Place
from holdfast.engines.zookeeper.queue import LockQueue, id_of
from holdfast.engines.zookeeper.reply import Reply
from holdfast.engines.zookeeper.requests import Requester

#: How long a claim waits for a predecessor that is about to be granted, in seconds.
_BRIEFLY: Final = 0.4
#: The path may be removed while it is being created; ``resize`` gives up after this many times.
_ATTEMPTS: Final = 5


class Semaphores:
    """The semaphores of one session."""

    def __init__(self, requester: Requester, queue: LockQueue) -> None:
        self._requester = requester
        self._queue = queue

    # -- taking permits --------------------------------------------------------------------------------------------

    async def acquire(self, attempt: SimpleAttempt, timeout: float) -> Granted | Busy:
        runtime, began = self._requester.runtime, self._requester.runtime.now()
        left = timeout
        while True:  # what it has read may be outdated when it acts
            asked, reading = runtime.now(), _Reading(self._requester, self._queue.path(attempt.claim.name))
            place, children = await self._queue.enter(attempt, left, reading.send)
            if children is None:
                return Busy()
            room = await reading.room(place.connection, attempt, left)
            await self._queue.check_kind(attempt, reading.siblings, None, left)
            answer = await self._ask(attempt, place, children, room, asked, left)
            left = began + timeout - runtime.now()
            if answer is not None:
                return answer
            if left <= 0:
                return Busy()

    async def _ask(
        self, attempt: SimpleAttempt, place: Place, children: Sequence[str], room: Room, asked: float, timeout: float
    ) -> Granted | Busy | None:
        """None: look again."""
        count, hub = attempt.claim.mode.permits, self._requester.hub
        held = room.held_by(id_of(attempt))
        if held:  # granted already: the answer was lost, or came too late
            return await self._found(attempt, place, held, room, asked, timeout)
        place.granting = False
        if place.ended or place.node not in children:
            hub.forget(attempt)  # removed, with the semaphore or its session: to the end of the queue
            return None
        path = self._queue.path(attempt.claim.name)
        leases, size = layout.leases(path), Size(layout.size(path), room.stored and room.stored.written)
        impossible = room.impossible(count, f"{leases}/{place.node}")
        if impossible is not None:
            await self._queue.leave(attempt, timeout)
            return Busy(impossible=impossible)
        before = order.predecessor(children, place.node)
        if before is not None:
            place.awaited = (Predecessor(f"{place.parent}/{before}"), size)
            if room.fits(count) and await self._waits_briefly(attempt, place, children, room, timeout):
                return None
            return Busy()
        if not room.fits(count):
            place.awaited = (Leases(leases, room.held), size)
            return Busy()
        return await self._exchange(attempt, place, room, asked, timeout)

    async def _exchange(
        self, attempt: SimpleAttempt, place: Place, room: Room, asked: float, timeout: float
    ) -> Granted | None:
        """Take the permits for the node in the queue. None: something has changed, and nothing was taken."""
        requester, connection, claim = self._requester, place.connection, attempt.claim
        path = self._queue.path(claim.name)
        leases, size = layout.leases(path), layout.size(path)
        if room.leases is None:
            await self._queue.make_path(connection, leases, timeout)
            return (
                None  # from here on a claim of another kind is refused; one that came before is seen by the next look
            )
        paths = tuple(f"{leases}/{layout.lease(id_of(attempt), index)}" for index in range(claim.mode.permits))
        operations: list[Operation] = [connection.removal(place.path)]
        if room.stored is not None:
            operations.append(connection.check(size, room.stored.version))
        elif room.size is not None:
            operations.append(connection.persistent(size, permits.written(room.size)))
        about = metadata.describe(claim, connection.negotiated)
        operations += [connection.ephemeral(each, about if each == paths[0] else b"") for each in paths]
        sent = requester.runtime.now()
        known, exchanged, read = connection.heartbeat.known(sent), requester.reply(), requester.reply()
        place.granting, place.changed = True, None  # until it is answered, both nodes and permits may exist
        connection.multi(operations, exchanged.receiver)
        connection.get(paths[0], read.receiver)
        left = await requester.wait_for_last(read, timeout)
        if await requester.outcome(connection, exchanged, left) is not None:
            place.granting = False
            return None
        try:
            _, stat = await requester.read(connection, read, left)
        except NoNodeError:
            return None  # broken already
        granted = Place(claim.name, connection, place.session, place.ttl, paths, stat.czxid, sent, known)
        requester.hub.settle(attempt, granted)
        return requester.hub.granted(granted, asked, room.size or 0)

    async def _found(
        self, attempt: SimpleAttempt, place: Place, held: Sequence[str], room: Room, asked: float, timeout: float
    ) -> Granted | None:
        """The claim's own permits exist. They hold if they are complete and of the present session."""
        requester, connection = self._requester, place.connection
        leases = layout.leases(self._queue.path(attempt.claim.name))
        paths = tuple(f"{leases}/{node}" for node in held)
        try:
            _, stat = await requester.get(connection, paths[0], timeout)
        except NoNodeError:
            return None
        if len(paths) < attempt.claim.mode.permits or stat.ephemeralOwner != place.session or place.ended:
            await requester.delete_all(connection, paths, timeout)  # some were broken
            requester.hub.forget(attempt)
            return None
        if place.granting:
            place = replace(place, paths=paths, token=stat.czxid, granting=False, watched=set(), awaited=())
            requester.hub.settle(attempt, place)
        return requester.hub.granted(place, asked, room.size or 0)

    async def _waits_briefly(
        self, attempt: SimpleAttempt, place: Place, children: Sequence[str], room: Room, timeout: float
    ) -> bool:
        """Wait for a predecessor, if the head of the queue is about to be granted: permits are free, and a caller that
        does not wait must not find them busy because others take some at the same moment."""
        requester = self._requester
        head = order.ordered(children)[0]
        try:
            data, _ = await requester.get(place.connection, f"{place.parent}/{head}", timeout)
        except NoNodeError:
            return True
        if not room.fits(metadata.wanted(data)):
            return False
        contender = ZooKeeperContender(requester, self._queue, attempt, timeout)
        try:
            await contender.wait(requester.runtime.now() + min(_BRIEFLY, timeout / 2))
            return place.changed is not None and place.changed.is_set
        finally:
            contender.abandon()
            place.changed = None  # no watch reports to it any more

    # -- their number ----------------------------------------------------------------------------------------------

    async def resize(self, name: str, size: int, timeout: float) -> None:
        requester, path, data = self._requester, self._queue.path(name), permits.written(size)
        connection = await requester.connected(None, timeout)
        for _ in range(_ATTEMPTS):
            found = layout.other_kind(await requester.children(connection, path, timeout), Kind.SEMAPHORE)
            if found is not None:
                raise wrong_kind(name, Kind.SEMAPHORE, found)
            if await self._done(connection, connection.write(layout.size(path), data), timeout) is None:
                return
            refused = await self._done(connection, connection.persistent(layout.size(path), data), timeout)
            if refused is None:
                return
            if not isinstance(refused, NodeExistsError):
                await self._queue.make_path(connection, path, timeout)
        raise RequestFailed(f"{path} is removed as soon as it is created", may_have_happened=False)

    async def _done(self, connection: Connection, operation: Operation, timeout: float) -> Exception | None:
        done = self._requester.reply()
        connection.multi([operation], done.receiver)
        refused = await self._requester.outcome(connection, done, timeout)
        return None if refused is None else refused[1]


class _Reading:
    """One look at a semaphore, by requests that follow the one for its queue."""

    def __init__(self, requester: Requester, path: str) -> None:
        self._requester = requester
        self._path = path
        self._replies: list[Reply] = []
        self.siblings: Sequence[str] = ()  #: the children of its path

    def send(self, connection: Connection) -> None:
        self._replies = siblings, leases, size = [self._requester.reply() for _ in range(3)]
        connection.children(self._path, siblings.receiver)
        connection.children(layout.leases(self._path), leases.receiver)
        connection.get(layout.size(self._path), size.receiver)

    async def room(self, connection: Connection, attempt: SimpleAttempt, timeout: float) -> Room:
        requester, (siblings, listed, size) = self._requester, self._replies
        left = await requester.wait_for_last(size, timeout)
        leases: Sequence[str] | None = None
        stored: StoredSize | None = None
        try:
            self.siblings = await requester.answer(connection, siblings, left)
            leases = await requester.answer(connection, listed, left)
        except NoNodeError:
            pass
        try:
            stored = StoredSize.of(layout.size(self._path), *await requester.read(connection, size, left))
        except NoNodeError:
            pass
        return Room.of(leases, stored, attempt.claim.mode.size)
