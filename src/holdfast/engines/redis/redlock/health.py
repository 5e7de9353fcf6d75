"""Which servers are worth asking. Pure.

A server that does not answer costs its timeout, and the others have answered long before. So after a failure it is
skipped for a while: longer each time, and the longer the more time the failure has cost. Never below a majority: if too
few were left, all are asked.
"""

from __future__ import annotations

from typing import Final

from holdfast.engines.redis.redlock.quorum import majority

_FIRST: Final = 0.05
_LONGEST: Final = 1.0
#: A server whose failure has cost some time is skipped for this many times as long: so one unresponsive server slows a
#: busy client down by a tenth, however long it does not answer.
_COST: Final = 10.0
_LONGEST_BY_COST: Final = 10.0


class Health:
    """Shared by threads; a race between them costs at most one request more or less."""

    def __init__(self, servers: int) -> None:
        self._quorum = majority(servers)
        self._failures = [0] * servers
        self._again_at = [0.0] * servers
        self.ailing = False  #: False is the usual case, and must cost nothing

    def worth_asking(self, now: float) -> list[int]:
        """The servers to ask at ``now``, in their order."""
        every = range(len(self._again_at))
        if not self.ailing:
            return list(every)
        chosen = [server for server in every if self._again_at[server] <= now]
        return chosen if len(chosen) >= self._quorum else list(every)

    def by_trust(self) -> list[int]:
        """All servers, those without a failure first."""
        return sorted(range(len(self._failures)), key=self._failures.__getitem__)

    def answered(self, server: int) -> None:
        if self._failures[server]:
            self._failures[server], self._again_at[server] = 0, 0.0
            self.ailing = any(self._failures)

    def failed(self, server: int, now: float, cost: float) -> None:
        """The server gave no answer within ``cost`` seconds."""
        self._failures[server] += 1
        pause = min(_LONGEST, _FIRST * 2 ** min(self._failures[server] - 1, 10))
        self._again_at[server] = now + max(pause, min(_LONGEST_BY_COST, _COST * cost))
        self.ailing = True

    def skip_none(self) -> None:
        """There was no majority without the skipped servers: next time, ask them too."""
        self._again_at = [0.0] * len(self._again_at)
