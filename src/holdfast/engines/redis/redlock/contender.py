"""Waiting for a lock on several servers: in line on one of them, so that a release wakes one process and not all.

The line is a courtesy. Who holds is decided by the majority alone; if the server with the line is lost, waiters stand
in line at the next one, and those who still stand at the old one compete with them for a while.
"""

from __future__ import annotations

import random
from typing import Any, Final

from holdfast._runtime.base import Runtime
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.redlock.servers import Servers
from holdfast.engines.redis.scripts import LEAVE
from holdfast.engines.redis.waiting.contender import RedisContender
from holdfast.errors import EngineRefused

#: A wait that was over sooner than this was none: the lock is free at the server with the line, but not at others.
#: Several who try at once can split the votes for ever, unless they come back at different times.
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
        self._line: RedisContender | None = None
        self._refused: dict[int, EngineRefused] = {}
        self._in_vain = 0

    async def wait(self, until: float) -> None:
        began = self._runtime.now()
        await self._in_line(until)
        now = self._runtime.now()
        self._in_vain = self._in_vain + 1 if now - began < _NO_WAIT else 0
        if self._in_vain:
            longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._in_vain, 10))
            await self._runtime.sleep_until(min(until, now + random.uniform(0, longest)))

    async def _in_line(self, until: float) -> None:
        """Wait at the most trusted server that lets us stand in line; if none does in time, raise what one said."""
        failure: RequestFailed | EngineRefused | None = None
        for server in self._servers.health.by_trust():
            if server in self._refused:
                failure = failure or self._refused[server]
                continue
            began = self._runtime.now()
            try:
                await self._at(server).wait(until)
                return
            except EngineRefused as refusal:  # its own affair: the others may well be enough for a majority
                failure = self._refused[server] = refusal
            except RequestFailed as error:
                failure = error
                # Most of the time may have been a good wait; what failed is one request.
                self._servers.failed(server, error, max(began, self._runtime.now() - self.timeout))
                if self._runtime.now() >= until:
                    break  # the next one may take as long, and the caller's time is up
        assert failure is not None
        raise failure

    def _at(self, server: int) -> RedisContender:
        """The line at ``server``, newly joined if it is another one than before.

        Under the same id, if it is new there: so a grant removes it from all lines. Left at the server that has failed,
        it would be taken for one who waits, and polite claims would let it go first until its ttl.
        """
        if self._line is None or self._server != server:
            self.abandon()
            if server in self._visited:
                self._attempt.waiter = None  # an id never joins a line twice
            self._server = server
            self._visited.add(server)
            self._line = RedisContender(
                self._servers.channels[server],
                self._runtime,
                self._attempt,
                keys_of(self._attempt.claim.name),
                self.timeout,
            )
        self._line.timeout = self.timeout
        return self._line

    async def leave(self) -> bool:
        self.abandon()
        waiter = self._attempt.waiter
        if waiter is None:
            return True
        keys = keys_of(self._attempt.claim.name)
        call = Call(LEAVE, (keys.queue, keys.waiter(waiter)), (waiter,))
        answers = await self._servers.ask_some(sorted(self._visited), call, self.timeout)
        if any(isinstance(answer, Exception) for answer in answers):
            return False
        self._attempt.waiter = None
        return True

    def abandon(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.abandon()
