"""A cluster as one channel: each request goes to the server that has its slot, and follows it when it has moved.

A redirected request did not run, so it is sent on as it is: the same claim, in the same call. Everything else that goes
wrong (a server is away, the slot is half moved, no majority of masters) is a failure that the core tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from holdfast._runtime.base import Wakeup
from holdfast.engines.base import RequestFailed, Suspects
from holdfast.engines.redis.channel import Answer, Argument, Channel, Publish, Script
from holdfast.engines.redis.cluster.slots import Place, Table, parse, slot_of
from holdfast.engines.redis.cluster.watch import ClusterWatch
from holdfast.engines.redis.fleet import Fleet
from holdfast.engines.redis.replies import Redirected
from holdfast.engines.redis.requests import Call, unacknowledged
from holdfast.errors import EngineRefused

#: A slot that is on the move may redirect twice; more is a cluster that does not agree with itself.
_HOPS: Final = 5
#: Of the candidates for the table, one in a black hole must leave time for another.
_ATTEMPTS: Final = 3
#: Calls in one buffer to one server: more would keep it from everybody else for too long.
_AT_ONCE: Final = 200


class Node(Channel, Protocol):
    """A channel to one server of the cluster."""

    publish: Publish

    async def run_acknowledged(
        self, call: Call, replicas: int, timeout: float, *, asking: bool = False
    ) -> tuple[Any, int]: ...


N = TypeVar("N", bound=Node)


class ClusterChannel(Generic[N]):
    """See :class:`holdfast.engines.redis.channel.Channel`."""

    def __init__(self, fleet: Fleet[N], open_node: Callable[[Place], N], table: Table, publish: Publish | None) -> None:
        self._fleet = fleet
        self._open_node = open_node
        self._table = table
        self._told = publish
        self._nodes: dict[Place, N] = {}
        self._closed = False

    @property
    def publish(self) -> Publish:
        return self._table.publish or "PUBLISH"

    # -- requests --------------------------------------------------------------------------------------------------

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Argument], timeout: float) -> Any:
        table = self._table
        place = table.owners[slot_of(keys[0])]
        if place is None or table.stale:
            return (await self._follow(Call(script, keys, args), 0, timeout))[0]
        try:
            return await self.node(place).run(script, keys, args, timeout)
        except Redirected as redirection:
            redirected = redirection
        except RequestFailed:
            table.trouble_with(place)
            raise
        return (await self._follow(Call(script, keys, args), 0, timeout, redirected, place))[0]

    async def run_acknowledged(self, call: Call, replicas: int, timeout: float) -> tuple[Any, int]:
        return await self._follow(call, replicas, timeout)

    async def command(self, args: Sequence[Argument], timeout: float) -> Any:
        place = await self.owner(str(args[1]), timeout)
        for _ in range(_HOPS):
            try:
                return await self.node(place).command(args, timeout)
            except Redirected as redirection:
                if redirection.once:  # a look may wait until the slot has arrived
                    raise RequestFailed(str(redirection), may_have_happened=False) from redirection
                place, _ = self.redirect(redirection, place)
            except RequestFailed:
                self._table.trouble_with(place)
                raise
        raise _astray(place)

    async def _follow(
        self,
        call: Call,
        replicas: int,
        timeout: float,
        redirection: Redirected | None = None,
        place: Place | None = None,
    ) -> tuple[Any, int]:
        """Send ``call`` to where its slot is, on and on while servers say that it is elsewhere."""
        deadline = time.monotonic() + timeout
        asking = False
        if redirection is not None and place is not None:
            place, asking = self.redirect(redirection, place)
        else:
            place = await self.owner(call.keys[0], timeout)
        for _ in range(_HOPS):
            left = max(deadline - time.monotonic(), 0.001)
            try:
                return await self.node(place).run_acknowledged(call, replicas, left, asking=asking)
            except Redirected as redirected:
                place, asking = self.redirect(redirected, place)
            except RequestFailed:
                self._table.trouble_with(place)
                raise
        raise _astray(place)

    def redirect(self, redirection: Redirected, asked: Place) -> tuple[Place, bool]:
        """Where to go instead, and whether to announce that we were sent (the slot is still on its way)."""
        place = Place(redirection.host or asked.host, redirection.port)
        if not redirection.once:
            self._table.moved(redirection.slot, place)
        return place, redirection.once

    # -- renewals --------------------------------------------------------------------------------------------------

    async def run_guarded(self, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer]:
        """All servers at once. One that fails costs its own calls and nobody else's."""
        answers: dict[int, Answer] = {}
        waiting = await self._by_place(calls, answers, timeout)
        while waiting:
            now = {place: numbers[:_AT_ONCE] for place, numbers in waiting.items()}
            requests = [(self.node(place), [calls[at] for at in numbers]) for place, numbers in now.items()]
            replies = await self._fleet.ask_each(requests, replicas, timeout)
            for (place, numbers), given in zip(now.items(), replies, strict=True):
                answers.update(zip(numbers, given, strict=True))
                waiting[place] = waiting[place][_AT_ONCE:]
                if isinstance(given[0], RequestFailed):
                    self._table.trouble_with(place)
                    # Those that are still to be sent would meet the same, after another time-out.
                    answers.update(dict.fromkeys(waiting.pop(place), given[0]))
            waiting = {place: numbers for place, numbers in waiting.items() if numbers}
        for at, answer in answers.items():
            if isinstance(answer, Redirected):
                answers[at] = await self._renew_elsewhere(calls[at], replicas, timeout)
        return [answers[at] for at in range(len(calls))]

    async def _by_place(
        self, calls: Sequence[Call], answers: dict[int, Answer], timeout: float
    ) -> dict[Place, list[int]]:
        """Which calls go where; those whose slot nobody has are answered already."""
        grouped: dict[Place, list[int]] = {}
        for at, call in enumerate(calls):
            try:
                grouped.setdefault(await self.owner(call.keys[0], timeout), []).append(at)
            except (RequestFailed, EngineRefused) as failure:
                answers[at] = failure
        return grouped

    async def _renew_elsewhere(self, call: Call, replicas: int, timeout: float) -> Answer:
        try:
            reply, acknowledged = await self._follow(call, replicas, timeout)
        except (RequestFailed, EngineRefused) as failure:
            return failure
        return reply if acknowledged >= replicas else unacknowledged(acknowledged, replicas)

    async def doze(self, until: float, wakeup: Wakeup) -> Suspects:
        return await self._fleet.doze(list(self._nodes.values()), until, wakeup)

    # -- servers ---------------------------------------------------------------------------------------------------

    def watch(self) -> ClusterWatch:
        return ClusterWatch(self)

    async def servers(self, timeout: float) -> Sequence[N]:
        await self._refresh(timeout)
        return [self.node(place) for place in self._table.places()]

    async def owner(self, key: str, timeout: float) -> Place:
        """The server that has the slot of ``key``, as far as is known."""
        table, slot = self._table, slot_of(key)
        if table.stale or table.owners[slot] is None:
            await self._refresh(timeout)
        place = table.owners[slot]
        if place is None:
            raise RequestFailed(f"no server of the cluster has slot {slot} at present", may_have_happened=False)
        return place

    def node(self, place: Place) -> N:
        node = self._nodes.get(place)
        if node is None:
            if self._closed:
                raise RequestFailed("this session is closed", may_have_happened=False)
            node = self._nodes[place] = self._open_node(place)
            node.publish = self.publish
        return node

    def trouble_with(self, place: Place) -> None:
        self._table.trouble_with(place)

    async def _refresh(self, timeout: float) -> None:
        """Ask for the table, unless somebody did just now. Whoever answers is believed: what is wrong will redirect."""
        table = self._table
        if not table.may_refresh() and table.places():
            return
        deadline = time.monotonic() + timeout
        failure = RequestFailed("no server of the cluster is known", may_have_happened=False)
        for place in table.candidates():
            share = min(timeout / _ATTEMPTS, deadline - time.monotonic())
            if share <= 0:
                break
            try:
                reply = await self.node(place).command(("CLUSTER", "SLOTS"), share)
                if table.publish is None:
                    table.publish = await self._how_to_publish(place, share)
            except RequestFailed as error:
                failure = error
                table.trouble_with(place)
                continue
            table.learn(parse(reply, place))
            for node in self._nodes.values():
                node.publish = self.publish
            return
        if not table.places():
            raise failure

    async def _how_to_publish(self, place: Place, timeout: float) -> Publish:
        """As Redisson chooses, unless it was said: sharded where the server knows of it."""
        if self._told is not None:
            return self._told
        try:
            await self.node(place).command(("PUBSUB", "SHARDNUMSUB"), timeout)
        except EngineRefused:
            return "PUBLISH"
        return "SPUBLISH"

    async def close(self) -> None:
        self._closed = True
        for node in self._nodes.values():
            await node.close()


def _astray(place: Place) -> RequestFailed:
    return RequestFailed(
        f"the servers of the cluster redirect in circles, last to {place.host}:{place.port}", may_have_happened=False
    )
