"""Waiting for a lock on several servers: in the queue of one of them, so that a release wakes one process and not all.

The queue only saves requests: the majority alone decides which attempt holds. If the server with the queue is lost,
waiters queue at the next one, and those that are still queued at the old one compete with them for a while.
"""

from __future__ import annotations

import random
from typing import Any, Final

from holdfast._runtime.base import Runtime
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.dialect.waiters import encode_leave
from holdfast.engines.redis.redlock.servers import Servers
from holdfast.engines.redis.waiting.contender import RedisContender
from holdfast.errors import EngineRefused

#: A wait that ended sooner than this (s) was useless: the lock is free at the server with the queue, but not at others.
#: Attempts that run at the same time can split the votes repeatedly, unless they retry at different times.
_NO_WAIT: Final = 0.002
_FIRST_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.1


class RedlockContender:
    """See :class:`holdfast.engines.base.Contender`."""

    def __init__(self, servers: Servers[Any], runtime: Runtime, attempt: RedlockAttempt, timeout: float) -> None:
        self._servers = servers
        self._runtime = runtime
        self._attempt = attempt
        self.timeout = timeout
        self._server: int | None = None
        self._visited: set[int] = set()
        self._contender: RedisContender | None = None  # in the queue of that server
        self._refused: dict[int, EngineRefused] = {}
        self._useless = 0  # waits in a row

    async def wait(self, until: float) -> None:
        began = self._runtime.now()
        await self._wait_in_queue(until)
        now = self._runtime.now()
        self._useless = self._useless + 1 if now - began < _NO_WAIT else 0
        if self._useless:
            longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._useless, 10))
            await self._runtime.sleep_until(min(until, now + random.uniform(0, longest)))

    async def _wait_in_queue(self, until: float) -> None:
        """Wait at the most trusted server that accepts this waiter; if none does in time, raise one's failure."""
        failure: RequestFailed | EngineRefused | None = None
        for server in self._servers.health.by_trust():
            if server in self._refused:
                failure = failure or self._refused[server]
                continue
            began = self._runtime.now()
            try:
                await self._at(server).wait(until)
                return
            except EngineRefused as refusal:  # of this server alone: the others may be enough for a majority
                failure = self._refused[server] = refusal
            except RequestFailed as error:
                failure = error
                # Most of the time may have been a useful wait; what failed is one request.
                self._servers.failed(server, error, max(began, self._runtime.now() - self.timeout))
                if self._runtime.now() >= until:
                    break  # the next server may take as long, and the caller's time is up
        assert failure is not None
        raise failure

    def _at(self, server: int) -> RedisContender:
        """The contender in the queue at ``server``; a new one if that is another server than before.

        Under the same id, if it is new there: so a grant removes it from all queues. If it stayed at the server that
        has failed, it would count as waiting there, and non-barging claims would yield to it until its ttl ends.
        """
        if self._contender is None or self._server != server:
            self.abandon()
            if server in self._visited:
                self._attempt.waiter = None  # an id never joins a queue twice
            self._server = server
            self._visited.add(server)
            self._contender = RedisContender(self._servers.channels[server], self._runtime, self._attempt, self.timeout)
        self._contender.timeout = self.timeout
        return self._contender

    async def leave(self) -> bool:
        self.abandon()
        waiter = self._attempt.waiter
        if waiter is None:
            return True
        call = encode_leave(self._attempt.claim.name, waiter)
        answers = await self._servers.ask_some(sorted(self._visited), call, self.timeout)
        if any(isinstance(answer, Exception) for answer in answers):
            return False
        self._attempt.waiter = None
        return True

    def abandon(self) -> None:
        contender, self._contender = self._contender, None
        if contender is not None:
            contender.abandon()
