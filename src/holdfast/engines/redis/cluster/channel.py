"""A cluster as one channel: each request goes to the server that has its slot, and follows it when it has moved.

A redirected request did not run, so it is sent on as it is: the same claim, in the same call. Everything else that goes
wrong (a server is unreachable, the slot is half moved, no majority of masters) is a failure; the core tries again.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.cluster.node import N, Node
from holdfast.engines.redis.cluster.slots import HOPS, UNKNOWN, Place, Table, astray, parse, slot_of, unserved
from holdfast.engines.redis.cluster.watch import ClusterWatch
from holdfast.engines.redis.connections.channel import Watch, close_all
from holdfast.engines.redis.dialect.packing import Argument
from holdfast.engines.redis.dialect.replies import Redirected, TryAgain
from holdfast.engines.redis.dialect.requests import Call, Opening, Plain, Publish
from holdfast.errors import EngineRefused

#: Candidates that may be asked for the table within one timeout: one in a black hole must leave time for another.
_ATTEMPTS: Final = 3
_NO_CLUSTER: Final = "cluster support disabled"
_REMEDY: Final = "this server is no node of a Redis Cluster; connect with redis://"


class ClusterChannel(Generic[N]):
    """See :class:`~holdfast.engines.redis.connections.channel.Channel`. Thread-safe where its nodes are.

    ``publish``: how to publish releases; None: as the servers can.
    """

    def __init__(self, open_node: Callable[[Place], N], table: Table, publish: Publish | None) -> None:
        self._open_node = open_node
        self._table = table
        self._configured_publish = publish
        self._nodes: dict[Place, N] = {}
        self._pruned: object = None  # the table by which the channels of servers that have left were closed
        self._closed = False

    @property
    def publish(self) -> Publish:
        # Both, before the first reply: a client may begin with what wakes waiters, such as break_.
        return self._table.publish or self._configured_publish or "BOTH"

    # -- requests --------------------------------------------------------------------------------------------------

    async def run(self, call: Call, timeout: float) -> Any:
        table = self._table
        if not table.known:
            await self.refresh(timeout)  # has time of its own: thousands of first callers would use up theirs in it
        deadline = time.monotonic() + timeout
        place = table.owners[slot_of(call.keys[0])]
        if place is None or table.stale:
            return (await self._follow(call, 0, deadline))[0]
        try:
            return await self.node(place).run(call, timeout)
        except Redirected as redirection:
            place, asking = self.redirect(redirection, place)
        except RequestFailed as failure:
            self.blame(place, failure)
            raise
        return (await self._follow(call, 0, deadline, place, asking=asking))[0]

    def start(self, keys: Opening, packed: bytes, timeout: float) -> Any:
        table = self._table
        place = None if table.stale else table.owners[slot_of(keys[0])]
        if place is None:
            return None
        node = self._nodes.get(place)
        try:
            if node is None or self._closed:
                node = self.node(place)
            reply = node.start(keys, packed, timeout)
        except RequestFailed as failure:
            self.blame(place, failure)
            raise
        return self._started(place, reply) if hasattr(reply, "__await__") else reply

    async def _started(self, place: Place, reply: Awaitable[Any]) -> Any:
        try:
            return await reply
        except RequestFailed as failure:
            self.blame(place, failure)
            raise

    async def run_acknowledged(self, call: Call, replicas: int, timeout: float) -> tuple[Any, int]:
        return await self._follow(call, replicas, time.monotonic() + timeout)

    async def command(self, args: Sequence[Argument], timeout: float) -> Any:
        return (await self._follow(Plain(*args), 0, time.monotonic() + timeout))[0]

    async def _follow(
        self, call: Call, replicas: int, deadline: float, place: Place | None = None, *, asking: bool = False
    ) -> tuple[Any, int]:
        """Send ``call`` to the server that has its slot, and on to another while it is redirected."""
        if place is None:
            place = await self.owner(call.keys[0], deadline - time.monotonic())
        for _ in range(HOPS):
            left = max(deadline - time.monotonic(), 0.001)
            try:
                return await self.node(place).run_acknowledged(call, replicas, left, asking=asking)
            except Redirected as redirection:
                place, asking = self.redirect(redirection, place)
            except RequestFailed as failure:
                self.blame(place, failure)
                raise
        raise astray(slot_of(call.keys[0]))

    def redirect(self, redirection: Redirected, asked: Place) -> tuple[Place, bool]:
        host = asked.host if redirection.host in UNKNOWN else redirection.host
        place = Place(host, redirection.port)
        if not redirection.once:
            self._table.moved(redirection.slot, place)
        return place, redirection.once

    def blame(self, place: Place, failure: RequestFailed) -> None:
        if not isinstance(failure, TryAgain):  # else the slot is half moved; its server is well
            self._table.trouble_with(place)

    # -- servers ---------------------------------------------------------------------------------------------------

    def watch(self) -> ClusterWatch:
        return ClusterWatch(self)

    def watch_at(self, place: Place) -> Watch:
        """A watch at one server. It must subscribe in the way in which releases are published."""
        node = self.node(place)
        node.publish, node.clustered = self.publish, True
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
            # One for all threads: the connections of a second one would never be closed.
            node = self._nodes.setdefault(place, self._open_node(place))
        if self._closed:
            raise RequestFailed("this session is closed", may_have_happened=False)
        return node

    async def refresh(self, timeout: float) -> None:
        """Ask for the table, unless another caller did just now. Any server's answer is used: where it is wrong, the
        servers redirect.

        Raises RequestFailed or EngineRefused only as long as no table is known: a server that does not answer, or
        refuses, must not cost the locks on the others.
        """
        table = self._table
        if not table.may_refresh() and table.known:  # cheap: while a server is unreachable, every caller comes here
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
                failure = _with_remedy(error)  # rather than an unreachable server: this can be corrected
        if not table.known:
            raise failure or RequestFailed("no server of the cluster is known", may_have_happened=False)

    async def _ask_for_table(self, place: Place, timeout: float) -> None:
        node, table = self.node(place), self._table
        was_known = table.known
        found = parse(await node.command(("CLUSTER", "SLOTS"), timeout), place)
        if not found:
            # A new server, or one that was reset after it left the cluster: it must not replace the table.
            raise RequestFailed(f"{place.host}:{place.port} knows of no slots", may_have_happened=False)
        if table.publish is None:
            table.publish = self._configured_publish or await _how_to_publish(node, timeout)
        if was_known or not table.known:  # else one of thousands of first callers was faster
            table.learn(found)

    async def _close_those_that_left(self) -> None:
        """Close the channels to servers that are not in the table any more. Requests to them fail, and are tried again;
        what was tracked there is looked for immediately at the server that has it now."""
        owners = self._table.owners
        if owners is self._pruned:
            return
        self._pruned = owners
        staying = {*self._table.candidates()}
        for place, node in list(self._nodes.items()):
            if place not in staying and node.at_rest and self._nodes.pop(place, None) is not None:
                self._forget(node)
                await node.close()

    def _forget(self, node: N) -> None:
        """A server has left, and its channel is being closed."""

    async def close(self) -> None:
        self._closed = True
        await close_all(list(self._nodes.values()))


async def _how_to_publish(node: Node, timeout: float) -> Publish:
    """As Redisson chooses: sharded where the server supports it."""
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
