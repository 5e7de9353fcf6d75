"""Waiting in a lock's queue: each waiter watches its predecessor, so that a release wakes one waiter and not all."""

from __future__ import annotations

from kazoo.exceptions import NoNodeError

from holdfast.engines.base import SimpleAttempt
from holdfast.engines.zookeeper.place import Place
from holdfast.engines.zookeeper.queue import LockQueue
from holdfast.engines.zookeeper.reply import OneShotEvent
from holdfast.engines.zookeeper.requests import Requester


class ZooKeeperContender:
    """See :class:`holdfast.engines.base.Contender`."""

    def __init__(self, requester: Requester, queue: LockQueue, attempt: SimpleAttempt, timeout: float) -> None:
        self._requester = requester
        self._queue = queue
        self._attempt = attempt
        self.timeout = timeout
        self._watching: tuple[Place, str, OneShotEvent] | None = None

    async def wait(self, until: float) -> None:
        place = self._requester.hub.place(self._attempt)
        if place is None or place.ended:
            return  # the next acquire joins the end of the queue
        if not place.is_waiting(self._requester.runtime.now()):
            await self._arrange(place)
        if place.predecessor_gone is not None:
            await place.predecessor_gone.wait(self._requester.runtime, until)

    async def _arrange(self, place: Place) -> None:
        """Set a watch on the predecessor. If the predecessor is gone already, the event is set immediately."""
        self.abandon()
        predecessor, place.predecessor, place.predecessor_gone = place.predecessor, None, None
        if predecessor is None:
            return
        path, event, watches = f"{place.parent}/{predecessor}", OneShotEvent(), place.connection.watches
        self._watching = (place, path, event)
        try:
            if watches.add(path, event.set):
                looked = self._requester.reply()
                place.connection.watch(path, looked.receiver)
                await self._requester.answer(place.connection, looked, self.timeout)
        except NoNodeError:
            watches.fire(path)
        except BaseException:
            # It is unknown whether the watch is set, or (after Ctrl-C) even whether it was requested. Later waiters
            # must not rely on it.
            watches.fire(path)
            raise
        place.predecessor_gone, place.arranged = event, self._requester.runtime.now()

    async def leave(self) -> bool:
        self.abandon()
        await self._queue.leave(self._attempt, self.timeout)
        return True  # a node that cannot be removed now becomes a leftover

    def abandon(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            place, path, event = watching
            place.connection.watches.discard(path, event.set)
