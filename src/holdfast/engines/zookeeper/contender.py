"""Waiting in ZooKeeper's line: each watches the node in front, so that a release wakes one and not all."""

from __future__ import annotations

from kazoo.exceptions import NoNodeError

from holdfast.engines.base import SimpleAttempt
from holdfast.engines.zookeeper.asking import Asker
from holdfast.engines.zookeeper.line import Line
from holdfast.engines.zookeeper.place import Place
from holdfast.engines.zookeeper.reply import Alarm


class ZooKeeperContender:
    """See :class:`holdfast.engines.base.Contender`."""

    def __init__(self, asker: Asker, line: Line, attempt: SimpleAttempt, timeout: float) -> None:
        self._asker = asker
        self._line = line
        self._attempt = attempt
        self.timeout = timeout
        self._watching: tuple[Place, str, Alarm] | None = None

    async def wait(self, until: float) -> None:
        place = self._asker.hub.place(self._attempt)
        if place is None or place.over:
            return  # to the back of the line
        if not place.is_asleep(self._asker.runtime.now()):
            await self._arrange(place)
        if place.asleep is not None:
            await place.asleep.wait(self._asker.runtime, until)

    async def _arrange(self, place: Place) -> None:
        """Have it told when the node in front goes. It may have gone already: then at once."""
        self.abandon()
        front, place.front, place.asleep = place.front, None, None
        if front is None:
            return
        path, alarm, watches = f"{place.parent}/{front}", Alarm(), place.connection.watches
        self._watching = (place, path, alarm)
        try:
            if watches.add(path, alarm.ring):
                looked = self._asker.reply()
                place.connection.watch(path, looked.address)
                await self._asker.answer(place.connection, looked, self.timeout)
        except NoNodeError:
            watches.fire(path)
        except BaseException:
            # Nobody knows whether the watch is set, perhaps not even whether it was asked for (Ctrl-C). Those who come
            # later must not rely on it.
            watches.fire(path)
            raise
        place.asleep, place.arranged = alarm, self._asker.runtime.now()

    async def leave(self) -> bool:
        self.abandon()
        await self._line.leave(self._attempt, self.timeout)
        return True  # what cannot be removed now, the session removes later

    def abandon(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            place, path, alarm = watching
            place.connection.watches.discard(path, alarm.ring)
