"""When the watchdog has to look at which grant. Callers hold the core's lock; times are the runtime's.

A release must not leave anything behind, and ten thousand grants must be renewed in a few batches. So due times are
rounded down to a thirtieth of the ttl and grants with the same due time share a bucket: adding and removing is O(1),
and a bucket comes up as a whole.
"""

from __future__ import annotations

import heapq
from typing import Final

from holdfast._core.grant import Bucket, Grant

_BUCKETS_PER_TTL: Final = 30


class Timetable:
    """Grants by due time."""

    def __init__(self) -> None:
        self._buckets: dict[float, Bucket] = {}
        self._times: list[float] = []

    def add(self, grant: Grant, due: float, *, exact: bool = False) -> float:
        """(Re)schedule ``grant``. Not exact: up to a thirtieth of its ttl sooner. Returns the time entered."""
        if grant.bucket is not None:
            self.discard(grant)
        if not exact:
            step = grant.ttl / _BUCKETS_PER_TTL
            due = due // step * step
        bucket = self._buckets.get(due)
        if bucket is None:
            bucket = self._buckets[due] = {}
            heapq.heappush(self._times, due)
        bucket[grant] = None
        grant.bucket = bucket
        return due

    def discard(self, grant: Grant) -> None:
        """Forget ``grant``. Its bucket stays until its time: a busy client must not wake the watchdog at each release."""
        if grant.bucket is not None:
            grant.bucket.pop(grant, None)
            grant.bucket = None

    def next_time(self) -> float | None:
        return self._times[0] if self._times else None

    def pop_due(self, now: float) -> list[Grant]:
        """Take out everything that is due."""
        due: list[Grant] = []
        while self._times and self._times[0] <= now:
            due.extend(self._buckets.pop(heapq.heappop(self._times)))
        for grant in due:
            grant.bucket = None
        return due

    def grants(self) -> list[Grant]:
        """All that is scheduled."""
        return [grant for bucket in self._buckets.values() for grant in bucket]
