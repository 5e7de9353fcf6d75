"""A cluster as one channel: each request goes to the server that has its slot, and follows it when it has moved.

A redirected request did not run, so it is sent on as it is: the same claim, in the same call. Everything else that goes
wrong (a server is away, the slot is half moved, no majority of masters) is a failure that the core tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic

from holdfast._runtime import clock
from holdfast._runtime.base import Wakeup
from holdfast.engines.base import ALL_NAMES, RequestFailed, Suspects
from holdfast.engines.redis.cluster.node import N, Node
from holdfast.engines.redis.cluster.renewals import Renewal
from holdfast.engines.redis.cluster.slots import HOPS, UNKNOWN, Place, Table, astray, parse, slot_of, unserved
from holdfast.engines.redis.cluster.unresponsive import Silence
from holdfast.engines.redis.cluster.untracked import Moving
from holdfast.engines.redis.cluster.watch import ClusterWatch
from holdfast.engines.redis.connections.channel import Watch
from holdfast.engines.redis.connections.group import Fleet, KeeperFleet
from holdfast.engines.redis.dialect.packing import Argument
from holdfast.engines.redis.dialect.replies import Answer, Redirected, TryAgain
from holdfast.engines.redis.dialect.requests import Call, Plain, Publish
from holdfast.engines.redis.scripts import Script
from holdfast.errors import EngineRefused

#: Of the candidates for the table, one in a black hole must leave time for another.
_ATTEMPTS: Final = 3
_NO_CLUSTER: Final = "cluster support disabled"
_REMEDY: Final = "this server is no node of a Redis Cluster; connect with redis://"


class ClusterChannel(Generic[N]):
    """See :class:`holdfast.engines.redis.connections.channel.Channel`. Thread-safe where its nodes are."""

    def __init__(self, fleet: Fleet[N], open_node: Callable[[Place], N], table: Table, publish: Publish | None) -> None:
        self._fleet = fleet
        self._open_node = open_node
        self._table = table
        self._told = publish
        self._nodes: dict[Place, N] = {}
        self._moving = Moving()
        self._pruned: object = None  # the table by which those that have left were closed
        self._lost_track = False  # what one of them would have told, nobody does
        self._silence: Silence | None = None  # a keeper's only: each wait for hints begins a round
        self._closed = False

    @property
    def publish(self) -> Publish:
        return self._table.publish or "PUBLISH"

    # -- requests --------------------------------------------------------------------------------------------------

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Argument], timeout: float) -> Any:
        table = self._table
        if not table.known:
            await self.refresh(timeout)  # has time of its own: thousands of first callers would use up theirs in it
        deadline = time.monotonic() + timeout
        place = table.owners[slot_of(keys[0])]
        if place is None or table.stale or self._silence is not None:
            return (await self._follow(Call(script, keys, args), 0, deadline))[0]
        try:
            return await self.node(place).run(script, keys, args, timeout)
        except Redirected as redirection:
            place, asking = self.redirect(redirection, place)
        except RequestFailed as failure:
            self.blame(place, failure)
            raise
        return (await self._follow(Call(script, keys, args), 0, deadline, place, asking=asking))[0]

    async def run_acknowledged(self, call: Call, replicas: int, timeout: float) -> tuple[Any, int]:
        return await self._follow(call, replicas, time.monotonic() + timeout)

    async def command(self, args: Sequence[Argument], timeout: float) -> Any:
        return (await self._follow(Plain(*args), 0, time.monotonic() + timeout))[0]

    async def _follow(
        self, call: Call, replicas: int, deadline: float, place: Place | None = None, *, asking: bool = False
    ) -> tuple[Any, int]:
        """Send ``call`` to where its slot is, on and on while servers say that it is elsewhere."""
        if place is None:
            place = await self.owner(call.keys[0], deadline - time.monotonic())
        for _ in range(HOPS):
            began = time.monotonic()
            left = max(deadline - began, 0.001)
            if failure := self.silence(place, replicas):
                raise failure
            try:
                return await self.node(place).run_acknowledged(call, replicas, left, asking=asking)
            except Redirected as redirection:
                place, asking = self.redirect(redirection, place)
            except RequestFailed as failure:
                self.blame(place, failure, replicas, late=time.monotonic() - began >= left / 2)
                raise
        raise astray(slot_of(call.keys[0]))

    def redirect(self, redirection: Redirected, asked: Place) -> tuple[Place, bool]:
        host = asked.host if redirection.host in UNKNOWN else redirection.host
        place = Place(host, redirection.port)
        if not redirection.once:
            self._table.moved(redirection.slot, place)
        return place, redirection.once

    def blame(self, place: Place, failure: RequestFailed, replicas: int = 0, *, late: bool = False) -> None:
        if isinstance(failure, TryAgain):
            return  # the slot is half moved; its server is well
        self._table.trouble_with(place)
        if late and self._silence is not None:
            self._silence.note(place, replicas, failure)

    def silence(self, place: Place, replicas: int) -> RequestFailed | None:
        return None if self._silence is None else self._silence.of(place, replicas)

    # -- renewals --------------------------------------------------------------------------------------------------

    async def run_guarded(self, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer]:
        if self._table.stale:
            try:
                await self.refresh(timeout)
            except (RequestFailed, EngineRefused) as failure:
                return [failure] * len(calls)
        await self._close_those_that_left()
        return await Renewal(self, self._fleet, calls, replicas, timeout).run()

    async def run_together(self, calls: Sequence[Call], timeout: float) -> Sequence[Answer]:
        deadline = time.monotonic() + timeout
        if self._table.stale:
            try:
                await self.refresh(timeout)
            except (RequestFailed, EngineRefused) as failure:
                return [failure] * len(calls)
        await self._close_those_that_left()
        return await Renewal(self, self._fleet, calls, 0, timeout, deadline).run()

    def untracked(self, keys: Sequence[str]) -> None:
        self._moving.note(keys, clock.now())

    # -- servers ---------------------------------------------------------------------------------------------------

    def watch(self) -> ClusterWatch:
        return ClusterWatch(self)

    def watch_at(self, place: Place) -> Watch:
        """A watch at one server, which must listen as others publish."""
        node = self.node(place)
        node.publish = self.publish
        return node.watch()

    async def servers(self, timeout: float) -> Sequence[N]:
        """Those without recent trouble first."""
        await self.refresh(timeout)
        serving = set(self._table.places())
        return [self.node(place) for place in self._table.candidates() if place in serving]

    async def owner(self, key: str, timeout: float) -> Place:
        table, slot = self._table, slot_of(key)
        if table.stale or table.owners[slot] is None:
            await self.refresh(timeout)
        place = table.owners[slot]
        if place is None:
            raise unserved(slot)
        return place

    def known_owner(self, key: str) -> Place | None:
        return self._table.owners[slot_of(key)]

    def node(self, place: Place) -> N:
        node = self._nodes.get(place)
        if node is None:
            # One for all threads: a second one's connections would be nobody's.
            node = self._nodes.setdefault(place, self._open_node(place))
        if self._closed:
            raise RequestFailed("this session is closed", may_have_happened=False)
        return node

    async def refresh(self, timeout: float) -> None:
        """Ask for the table, unless somebody did just now. Whoever answers is believed: what is wrong will redirect.

        Raises RequestFailed or EngineRefused only as long as no table was ever had: a server that does not answer, or
        refuses, must not cost the locks on the others.
        """
        table = self._table
        if not table.may_refresh() and table.known:  # cheap: while a server is away, hundreds come by here
            await self._close_those_that_left()
            return
        deadline = time.monotonic() + timeout
        failure: RequestFailed | EngineRefused | None = None
        for place in table.candidates():
            share = min(timeout / _ATTEMPTS, deadline - time.monotonic())
            if share <= 0:
                break
            try:
                await self._ask_for_table(place, share)
                await self._close_those_that_left()
                return
            except RequestFailed as error:
                failure = failure or error
                table.trouble_with(place)
            except EngineRefused as error:
                failure = _with_remedy(error)  # rather than that another one is away: this can be mended
        if not table.known:
            raise failure or RequestFailed("no server of the cluster is known", may_have_happened=False)

    async def _ask_for_table(self, place: Place, timeout: float) -> None:
        node, table = self.node(place), self._table
        was_known = table.known
        found = parse(await node.command(("CLUSTER", "SLOTS"), timeout), place)
        if not found:
            # Fresh, or reset after it has left: it must not make us forget the others.
            raise RequestFailed(f"{place.host}:{place.port} knows of no slots", may_have_happened=False)
        if table.publish is None:
            table.publish = self._told or await _how_to_publish(node, timeout)
        if was_known or not table.known:  # else one of thousands of first callers was faster
            table.learn(found)

    async def _close_those_that_left(self) -> None:
        """Close the channels to servers that are in the table no more. Who is on his way there fails, and tries again;
        what was tracked there is looked for at once where it is now."""
        owners = self._table.owners
        if owners is self._pruned:
            return
        self._pruned = owners
        staying = {*self._table.candidates()}
        for place, node in list(self._nodes.items()):
            if place not in staying and node.at_rest and self._nodes.pop(place, None) is not None:
                self._lost_track = True
                await node.close()

    async def close(self) -> None:
        self._closed = True
        for node in list(self._nodes.values()):
            await node.close()


async def _how_to_publish(node: Node, timeout: float) -> Publish:
    """As Redisson chooses: sharded where the server knows of it."""
    try:
        await node.command(("PUBSUB", "SHARDNUMSUB"), timeout)
    except EngineRefused:
        return "PUBLISH"
    return "SPUBLISH"


def _with_remedy(refusal: EngineRefused) -> EngineRefused:
    if _NO_CLUSTER not in str(refusal):
        return refusal
    explained = EngineRefused(f"{refusal} ({_REMEDY})")
    explained.__cause__ = refusal
    return explained


class ClusterKeeperChannel(ClusterChannel[N]):
    """See :class:`holdfast.engines.redis.connections.channel.KeeperChannel`."""

    def __init__(
        self, fleet: KeeperFleet[N], open_node: Callable[[Place], N], table: Table, publish: Publish | None
    ) -> None:
        super().__init__(fleet, open_node, table, publish)
        self._keeper_fleet = fleet

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        self._silence = self._silence or Silence()
        self._silence.begin_round()
        if self._lost_track:
            self._lost_track = False
            return ALL_NAMES
        nodes = list(self._nodes.values())
        suspects = await self._keeper_fleet.wait_for_hints(nodes, min(until, self._moving.due), wakeup)
        moving = self._moving.take(clock.now())
        return suspects if suspects == ALL_NAMES else {*suspects, *moving}
