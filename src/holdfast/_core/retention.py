"""Holds that outlive the caller's handles: ``at_least`` of the decorator.

A retention is one more handle of a hold, which no user has. The watchdog's list refers to it until its time is over;
then it is garbage, and the hold is given back like that of any dropped handle. So the caller does not wait, the lease
is renewed meanwhile, and a client that is closed, or a process that exits, does not keep it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from holdfast._core import states

if TYPE_CHECKING:
    from holdfast._core.call_site import CallSite
    from holdfast._core.core import Core
    from holdfast._core.hold import Hold
    from holdfast.errors import LossReason

#: Keys of retentions are negative, those of leases are not; -1 stands for "no handle".
_keys: Final = itertools.count(-2, -1)


class Retention:
    """A handle that keeps a hold until ``until``."""

    __slots__ = ("__weakref__", "_acquired_at", "_caller", "_key", "until")
    _hold: Hold  #: not set: it is given back by its reference, see ``Hold.add``. A cycle would delay that.

    def __init__(self, until: float) -> None:
        self._key: Final = next(_keys)
        self._caller: Hashable = None
        self._acquired_at: CallSite | None = None
        self.until: Final = until

    def _lost_on_release(self, reason: LossReason) -> None:
        """A loss is reported to leases only."""


class Retentions:
    """The retentions of one client by the end of their time. The caller holds the core's lock."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Retention]] = []

    def add(self, retention: Retention) -> None:
        heapq.heappush(self._heap, (retention.until, retention._key, retention))

    def next_due(self) -> float:
        return self._heap[0][0] if self._heap else float("inf")

    def drop_due(self, now: float) -> None:
        """Those whose time is over are garbage from here on, and on the watchdog's list of dropped handles."""
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)


def retain(core: Core, hold: Hold, seconds: float) -> None:
    """Have ``hold`` last until ``seconds`` after its grant, also if all leases are released before. No I/O."""
    until = hold.since + seconds
    with core.lock:
        # One retention for each end: a lock that is re-entered a thousand times needs no thousand retentions.
        if hold.state is states.HELD and until > max(core.front.now(), hold.retained_until):
            retention = Retention(until)
            hold.retentions |= {retention._key}
            # First the list, then the hold: interrupted in between, the hold must not have a handle that is garbage
            # without the watchdog being woken.
            core.watchdog.retain(retention)
            hold.add(retention)
            hold.retained_until = until
