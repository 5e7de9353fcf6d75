"""Waiting in ZooKeeper's line: each watches the node in front, so that a release wakes one and not all."""

from __future__ import annotations

from kazoo.exceptions import NoNodeError

from holdfast.engines.base import SimpleAttempt
from holdfast.engines.zookeeper.place import Place
from holdfast.engines.zookeeper.queue import LockQueue
from holdfast.engines.zookeeper.reply import OneShotEvent
from holdfast.engines.zookeeper.requests import Requester


class ZooKeeperContender:
    """See :class:`holdfast.engines.base.Contender`."""

    def __init__(self, requester: Requester, line: LockQueue, attempt: SimpleAttempt, timeout: float) -> None:
        self._requester = requester
        self._queue = line
        self._attempt = attempt
        self.timeout = timeout
        self._watching: tuple[Place, str, OneShotEvent] | None = None

    async def wait(self, until: float) -> None:
        place = self._requester.hub.place(self._attempt)
        if place is None or place.ended:
            return  # to the back of the line
        if not place.is_waiting(self._requester.runtime.now()):
            await self._arrange(place)
        if place.predecessor_gone is not None:
            await place.predecessor_gone.wait(self._requester.runtime, until)

    async def _arrange(self, place: Place) -> None:
        """Have it told when the node in front goes. It may have gone already: then at once."""
        self.abandon()
        front, place.predecessor, place.predecessor_gone = place.predecessor, None, None
        if front is None:
            return
        path, event, watches = f"{place.parent}/{front}", OneShotEvent(), place.connection.watches
        self._watching = (place, path, event)
        try:
            if watches.add(path, event.set):
                looked = self._requester.reply()
                place.connection.watch(path, looked.receiver)
                await self._requester.answer(place.connection, looked, self.timeout)
        except NoNodeError:
            watches.fire(path)
        except BaseException:
            # Nobody knows whether the watch is set, perhaps not even whether it was asked for (Ctrl-C). Those who come
            # later must not rely on it.
            watches.fire(path)
            raise
        place.predecessor_gone, place.arranged = event, self._requester.runtime.now()

    async def leave(self) -> bool:
        self.abandon()
        await self._queue.leave(self._attempt, self.timeout)
        return True  # what cannot be removed now, the session removes later

    def abandon(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            place, path, event = watching
            place.connection.watches.discard(path, event.set)
