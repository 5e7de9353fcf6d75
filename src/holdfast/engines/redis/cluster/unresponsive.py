"""Servers that have not answered lately: the watchdog does not wait for them repeatedly. Pure.

Leases of different ttls are renewed one set after the other, and withdrawals come after them. If a dead server were
waited for in each of these, the leases on all other servers would expire meanwhile.
"""

from __future__ import annotations

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.cluster.slots import Place

_Entry = tuple[int, RequestFailed]


class Unresponsive:
    """Servers that let a timeout pass in this round of the watchdog or in the one before: they are not asked.

    So every second round is without a wait: leases that have become due during a wait are renewed in the next round,
    late by one timeout at most.
    """

    def __init__(self) -> None:
        self._now: dict[Place, _Entry] = {}
        self._before: dict[Place, _Entry] = {}

    def begin_round(self) -> None:
        self._now, self._before = {}, self._now

    def note(self, place: Place, replicas: int, failure: RequestFailed) -> None:
        """A request for which ``replicas`` were to acknowledge has timed out."""
        known = self._now.get(place)
        if known is None or replicas < known[0]:
            self._now[place] = (replicas, failure)

    def expected_failure(self, place: Place, replicas: int) -> RequestFailed | None:
        """The failure of such a request, as far as is known. Missing replicas do not make the server unresponsive."""
        for entry in (self._now.get(place), self._before.get(place)):
            if entry is not None and entry[0] <= replicas:
                return RequestFailed(str(entry[1]), may_have_happened=False)
        return None
