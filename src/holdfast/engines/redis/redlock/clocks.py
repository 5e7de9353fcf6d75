"""The servers' time as a session knows it: read once for all callers that need it, then estimated."""

from __future__ import annotations

from typing import Any, Final

from holdfast._runtime.base import Event, Runtime
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.dialect.operators import decode_ping, encode_ping
from holdfast.engines.redis.redlock.proposal import Proposal
from holdfast.engines.redis.redlock.servers import Servers
from holdfast.errors import EngineRefused

#: How often the servers are asked for their time, if the answers come too late to be kept.
_READINGS: Final = 3


class _Reading:
    """The servers are being asked for their time, for all callers that need it meanwhile."""

    __slots__ = ("failure", "over", "succeeded")

    def __init__(self, over: Event) -> None:
        self.over = over
        self.succeeded = False
        self.failure: RequestFailed | EngineRefused | None = None


class ServerClocks:
    """What an acquire proposes as its fencing token."""

    def __init__(self, servers: Servers[Any], runtime: Runtime, proposal: Proposal) -> None:
        self._servers = servers
        self._runtime = runtime
        self._proposal = proposal
        self._reading: _Reading | None = None

    def known(self) -> int | None:
        """The estimate for this moment; None: ``propose`` must ask the servers."""
        return self._proposal.at(self._runtime.now())

    async def propose(self, timeout: float) -> int:
        """The estimate for this moment. ``timeout`` bounds each question to the servers, if one is needed."""
        now = self._runtime.now
        until = now() + _READINGS * timeout
        while True:
            known = self._proposal.at(now())
            if known is not None:
                return known
            reading = self._reading
            if reading is None or now() >= until:
                return await self._read(timeout)
            # Thousands of first callers share one reading: else each would ask all servers.
            await reading.over.wait(until)
            if reading.failure is not None:
                raise _copy(reading.failure)
            if reading.succeeded:
                return self._proposal.last(now())

    async def _read(self, timeout: float) -> int:
        reading = self._reading = _Reading(self._runtime.event())
        try:
            proposal = await self._ask(timeout)
            reading.succeeded = True
            return proposal
        except (RequestFailed, EngineRefused) as failure:
            reading.failure = failure
            raise
        finally:
            if self._reading is reading:
                self._reading = None
            reading.over.set()

    async def _ask(self, timeout: float) -> int:
        readings = 0
        while True:
            asked = self._runtime.now()
            times = [decode_ping(reply) for reply in await self._servers.majority_of(encode_ping(), timeout)]
            now, readings = self._runtime.now(), readings + 1
            proposal = self._proposal.learn(times, asked, now)
            if readings == _READINGS or self._proposal.at(now) is not None:
                return proposal


def _copy(failure: RequestFailed | EngineRefused) -> RequestFailed | EngineRefused:
    """For another caller: a traceback grows with each caller that raises the same exception."""
    if isinstance(failure, RequestFailed):
        again = RequestFailed(str(failure), may_have_happened=failure.may_have_happened, errors=failure.errors)
        again.__cause__ = failure.__cause__
        return again
    refused = EngineRefused(str(failure), name=failure.name)
    refused.__cause__ = failure.__cause__
    return refused
