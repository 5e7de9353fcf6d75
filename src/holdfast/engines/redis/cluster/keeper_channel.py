"""A cluster as the watchdog's channel: batches to all servers in parallel, and hints from all of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from holdfast._runtime import clock
from holdfast._runtime.base import Wakeup
from holdfast.engines.base import ALL_NAMES, RequestFailed, Suspects
from holdfast.engines.redis.cluster.batches import Batch
from holdfast.engines.redis.cluster.channel import ClusterChannel
from holdfast.engines.redis.cluster.node import K
from holdfast.engines.redis.cluster.slots import Place, Table
from holdfast.engines.redis.cluster.unresponsive import Unresponsive
from holdfast.engines.redis.cluster.untracked import Untracked
from holdfast.engines.redis.connections.group import KeeperGroup
from holdfast.engines.redis.dialect.replies import Answer, TryAgain
from holdfast.engines.redis.dialect.requests import Call, Publish
from holdfast.errors import EngineRefused


class ClusterKeeperChannel(ClusterChannel[K]):
    """See :class:`~holdfast.engines.redis.connections.channel.KeeperChannel`. Used by the watchdog's thread alone."""

    def __init__(
        self, group: KeeperGroup[K], open_node: Callable[[Place], K], table: Table, publish: Publish | None
    ) -> None:
        super().__init__(open_node, table, publish)
        self._group = group
        self._untracked = Untracked()
        self._lost_track = False  # a server that has left tracked something, and will not push its loss
        self._unresponsive: Unresponsive | None = None  # from the first wait for hints on: each begins a round

    async def run_tracked(self, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer]:
        return await self._run(calls, replicas, timeout, math.inf)

    async def run_together(self, calls: Sequence[Call], timeout: float) -> Sequence[Answer]:
        return await self._run(calls, 0, timeout, time.monotonic() + timeout)

    async def _run(self, calls: Sequence[Call], replicas: int, timeout: float, deadline: float) -> Sequence[Answer]:
        if self._table.stale:
            try:
                await self.refresh(timeout)
            except (RequestFailed, EngineRefused) as failure:
                return [failure] * len(calls)
        await self._close_those_that_left()
        return await Batch(self, self._group, calls, replicas, timeout, deadline).run()

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        self._unresponsive = self._unresponsive or Unresponsive()
        self._unresponsive.begin_round()
        if self._lost_track:
            self._lost_track = False
            return ALL_NAMES
        nodes = list(self._nodes.values())
        suspects = await self._group.wait_for_hints(nodes, min(until, self._untracked.due), wakeup)
        untracked = self._untracked.take(clock.now())
        return suspects if suspects == ALL_NAMES else {*suspects, *untracked}

    # -- see KeeperNodes -------------------------------------------------------------------------------------------

    def untracked(self, keys: Sequence[str]) -> None:
        self._untracked.note(keys, clock.now())

    def note_failure(self, place: Place, failure: RequestFailed, replicas: int, *, late: bool) -> None:
        self.blame(place, failure)
        if late and self._unresponsive is not None and not isinstance(failure, TryAgain):
            self._unresponsive.note(place, replicas, failure)

    def expected_failure(self, place: Place, replicas: int) -> RequestFailed | None:
        return None if self._unresponsive is None else self._unresponsive.expected_failure(place, replicas)

    def _forget(self, node: K) -> None:
        self._lost_track = True
