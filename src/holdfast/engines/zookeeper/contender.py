"""Waiting in a queue: each waiter watches the nearest node before it that excludes it, so that a release wakes those
that can be granted and not all."""

from __future__ import annotations

from collections.abc import Sequence

from kazoo.exceptions import NoNodeError

from holdfast.engines.base import SimpleAttempt
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.obstacles import Obstacle
from holdfast.engines.zookeeper.place import Place
from holdfast.engines.zookeeper.queue import LockQueue
from holdfast.engines.zookeeper.reply import OneShotEvent, Reply
from holdfast.engines.zookeeper.requests import Requester


class ZooKeeperContender:
    """See :class:`holdfast.engines.base.Contender`."""

    def __init__(self, requester: Requester, queue: LockQueue, attempt: SimpleAttempt, timeout: float) -> None:
        self._requester = requester
        self._queue = queue
        self._attempt = attempt
        self.timeout = timeout
        self._watching: tuple[Place, Sequence[Obstacle], OneShotEvent] | None = None

    async def wait(self, until: float) -> None:
        place = self._requester.hub.place(self._attempt)
        if place is None or place.ended:
            return  # the next acquire joins the end of the queue
        if not place.is_waiting(self._requester.runtime.now()):
            await self._arrange(place)
        if place.changed is not None:
            await place.changed.wait(self._requester.runtime, until)

    async def _arrange(self, place: Place) -> None:
        """Set watches on what the place waits for. If one of it has changed already, the event is set immediately."""
        self.abandon()
        awaited, place.awaited, place.changed = place.awaited, (), None
        if not awaited:
            return
        event, watches = OneShotEvent(), place.connection.watches
        self._watching = (place, awaited, event)
        try:
            await self._watch(place.connection, awaited, event)
        except BaseException:
            # It is unknown whether the watches are set, or (after Ctrl-C) even whether they were requested. Later
            # waiters must not rely on them.
            for obstacle in awaited:
                watches.fire(obstacle.path)
            raise
        place.changed, place.arranged = event, self._requester.runtime.now()

    async def _watch(self, connection: Connection, awaited: Sequence[Obstacle], event: OneShotEvent) -> None:
        """Read all of it with watches, by pipelined requests."""
        asked: list[tuple[Obstacle, Reply]] = []
        for obstacle in awaited:
            if connection.watches.add(obstacle.path, event.set) or obstacle.compares:
                reply = self._requester.reply()
                asked.append((obstacle, reply))
                obstacle.watch(connection, reply.receiver)
        for obstacle, reply in asked:
            try:
                if obstacle.has_changed(await self._requester.answer(connection, reply, self.timeout)):
                    event.set()
            except NoNodeError:
                connection.watches.fire(obstacle.path)

    async def leave(self) -> bool:
        self.abandon()
        await self._queue.leave(self._attempt, self.timeout)
        return True  # what cannot be removed now becomes a leftover

    def abandon(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            place, awaited, event = watching
            for obstacle in awaited:
                place.connection.watches.discard(obstacle.path, event.set)
