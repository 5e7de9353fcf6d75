"""One waiter's wake-up in a cluster: at the server that has the slot, for as long as it has it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, TypeVar

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.cluster.node import Node, Nodes
from holdfast.engines.redis.cluster.slots import Place
from holdfast.engines.redis.connections.channel import Watch
from holdfast.engines.redis.dialect.packing import Argument
from holdfast.engines.redis.dialect.replies import Redirected
from holdfast.engines.redis.dialect.requests import Call

T = TypeVar("T")


class Cluster(Nodes[Node], Protocol):
    """The channel that a watch belongs to."""

    def watch_at(self, place: Place) -> Watch:
        """A new watch at one server."""


class ClusterWatch:
    """See :class:`~holdfast.engines.redis.connections.channel.Watch`.

    Moving a slot deletes its keys, which wakes the waiter. It looks again, and then watches where the slot is now.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._place: Place | None = None
        self._key = ""
        self._watch: Watch | None = None

    @property
    def polls(self) -> bool:
        return self._watch is not None and self._watch.polls

    @property
    def handed(self) -> int | None:
        return None if self._watch is None else self._watch.handed

    @property
    def lost(self) -> bool:
        return self._watch is None or self._watch.lost or self._cluster.known_owner(self._key) != self._place

    async def take_seat(self, channel: str, waiter: str, timeout: float) -> str | None:
        self._key = channel  # it has the lock's slot
        place = await self._cluster.owner(channel, timeout)
        return await self._asked(place, self._at(place).take_seat(channel, waiter, timeout))

    async def run(self, call: Call, timeout: float) -> Any:
        watch, place = self._watch, self._place
        if watch is None or place is None:
            raise RequestFailed("the connection was lost", may_have_happened=False)
        return await self._asked(place, watch.run(call, timeout))

    async def _asked(self, place: Place, answer: Awaitable[T]) -> T:
        """The answer of the server at ``place``. A redirection is noted, if it is permanent; the caller comes back
        soon."""
        try:
            return await answer
        except Redirected as redirection:
            self._cluster.redirect(redirection, place)
            raise RequestFailed(str(redirection), may_have_happened=False) from redirection
        except RequestFailed as failure:
            self._cluster.blame(place, failure)
            raise

    async def arm(self, key: str, channel: str, timeout: float) -> int:
        return int(await self.arm_reading(("PTTL", key), channel, timeout))

    async def arm_reading(self, words: Sequence[Argument], channel: str, timeout: float) -> Any:
        self._key = str(words[1])
        place = await self._cluster.owner(self._key, timeout)
        return await self._asked(place, self._at(place).arm_reading(words, channel, timeout))

    async def pushed(self, until: float) -> bool:
        watch = self._watch
        if self._cluster.known_owner(self._key) != self._place:
            return True  # another request has found that the slot has moved. A key that is absent is not pushed then.
        try:
            return watch is None or await watch.pushed(until)
        except Redirected:
            return True  # found by polling: the slot has moved

    def end_wait(self) -> None:
        if self._watch is not None:
            self._watch.end_wait()

    def close(self) -> None:
        watch, self._watch, self._place = self._watch, None, None
        if watch is not None:
            watch.close()

    def _at(self, place: Place) -> Watch:
        if self._watch is None or self._place != place:
            self.close()
            self._place, self._watch = place, self._cluster.watch_at(place)
        return self._watch
