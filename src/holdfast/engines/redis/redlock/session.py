"""Redlock at work: each operation is one script on all servers, and what a majority says counts.

Written once, on a fleet and a runtime. What a script does on one server is as ever; what is new is here: the tally, the
second phase that gives all servers the same token (RULES 7), and taking back what did not become a majority.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from holdfast._runtime.base import Event, Runtime
from holdfast.engines.base import (
    Busy,
    Claim,
    Found,
    Granted,
    LockState,
    RequestFailed,
)
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.connections.channel import Channel
from holdfast.engines.redis.connections.group import Fleet
from holdfast.engines.redis.dialect import metadata
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.engines.redis.dialect.packing import Argument
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Arguments, Call, Closing
from holdfast.engines.redis.keeper import milliseconds
from holdfast.engines.redis.redlock import quorum
from holdfast.engines.redis.redlock.contender import RedlockContender
from holdfast.engines.redis.redlock.keeper import RedlockLeases, as_found, note_freed, release_call, step_of
from holdfast.engines.redis.redlock.proposal import Proposal
from holdfast.engines.redis.redlock.quorum import Tally
from holdfast.engines.redis.redlock.servers import LeftAlone, Servers, failures
from holdfast.engines.redis.scripts import ACQUIRE, BREAK, INSPECT, LEAVE, PING, RAISE
from holdfast.engines.redis.session import scan
from holdfast.errors import EngineRefused

C = TypeVar("C", bound=Channel)
#: How often the servers are asked for their time, if the answers come too late to be kept.
_CLOCK_READINGS: Final = 3
#: Tombstone TTL after ``break_`` in ms: the holder's ttl is unknown here.
_SHORTEST_TOMBSTONE: Final = 60_000
#: What the acquire script answers if the lock is free, but not for one who must not overtake.
_NOT_YOUR_TURN: Final = -2


class _Reading:
    """The servers are being asked for their time, for all callers that need it meanwhile."""

    __slots__ = ("failure", "over", "succeeded")

    def __init__(self, over: Event) -> None:
        self.over = over
        self.succeeded = False
        self.failure: RequestFailed | EngineRefused | None = None


class RedlockSession(Generic[C]):
    """See :class:`holdfast.engines.base.Session`. ``labels`` name the servers in errors; ``time_of_day`` is this
    host's."""

    registers = None

    def __init__(
        self,
        fleet: Fleet[C],
        channels: Sequence[C],
        labels: Sequence[str],
        runtime: Runtime,
        token_ttl: float | None,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        self._servers = Servers(fleet, channels, labels, runtime)
        self._leases = RedlockLeases(self._servers, token_ttl)
        self._quorum = self._servers.quorum
        self._runtime = runtime
        self._token_ttl = milliseconds(token_ttl)
        self._proposal = Proposal(time_of_day)
        self._reading: _Reading | None = None

    # -- acquiring -------------------------------------------------------------------------------------------------

    def attempt(self, claim: Claim) -> RedlockAttempt:
        return RedlockAttempt(claim)

    async def acquire(self, attempt: RedlockAttempt, timeout: float) -> Granted | Busy:
        step = step_of(timeout)
        await self._clear_leftovers(attempt, step)
        answers = await self._vote(attempt, await self._propose(step), step)
        if answers is None:
            return Busy()
        votes = quorum.tally(answers)
        enough = len(votes.granted) >= self._quorum
        if enough and await self._agree(attempt, votes, step):
            attempt.token = votes.token
            attempt.unresolved |= bool(votes.unresolved)
            await self._leave_line(attempt, votes, step)
            return Granted(votes.token)
        await self._take_back(attempt, votes, step)
        if enough or len(votes.granted) + len(votes.busy) < self._quorum:
            raise self._servers.too_few(votes.failed, may_have_happened=attempt.unresolved, name=attempt.claim.name)
        return Busy(votes.remaining(self._quorum))

    async def _vote(self, attempt: RedlockAttempt, proposal: int, timeout: float) -> list[Answer] | None:
        """Phase 1: what each server says to ``attempt``; None: others are in line before it, whom it must not overtake.

        Not to overtake is to ask the server with the line first. Only that one: those who cannot reach it stand in
        another line, and if each let the other go first, nobody would go. And before the others: a claim that takes
        four servers while somebody else is given the one with the line has overtaken him.
        """
        call = self._acquire_call(attempt, proposal)
        if not attempt.claim.non_barging:
            return await self._servers.ask(call, timeout)
        line = self._servers.health.by_trust()[0]
        (first,) = await self._servers.ask_some([line], self._acquire_call(attempt, proposal, in_turn=True), timeout)
        return None if first == _NOT_YOUR_TURN else await self._servers.ask_after(line, first, call, timeout)

    def _acquire_call(self, attempt: RedlockAttempt, proposal: int, *, in_turn: bool = False) -> Call:
        keys, ttl = keys_of(attempt.claim.name), math.ceil(attempt.claim.ttl * 1000)
        names: Sequence[str] = keys.acquire
        tokens, description = attempt.claim.tokens, attempt.claim.description
        closing = Closing.of(ttl, tokens, description, self._token_ttl, int(in_turn), proposal)
        args: Sequence[Argument] = Arguments(attempt.owner, closing)
        if attempt.waiter is not None:
            names, args = (*names, keys.waiter(attempt.waiter)), (*args, attempt.waiter)
        return Call(ACQUIRE, names, args)

    async def _propose(self, timeout: float) -> int:
        now = self._runtime.now
        until = now() + _CLOCK_READINGS * timeout
        while True:
            known = self._proposal.at(now())
            if known is not None:
                return known
            reading = self._reading
            if reading is None or now() >= until:
                return await self._read_clocks(timeout)
            # Thousands of first callers share one reading: else each would ask all servers.
            await reading.over.wait(until)
            if reading.failure is not None:
                raise _again(reading.failure)
            if reading.succeeded:
                return self._proposal.last(now())

    async def _read_clocks(self, timeout: float) -> int:
        reading = self._reading = _Reading(self._runtime.event())
        try:
            proposal = await self._ask_for_time(timeout)
            reading.succeeded = True
            return proposal
        except (RequestFailed, EngineRefused) as failure:
            reading.failure = failure
            raise
        finally:
            if self._reading is reading:
                self._reading = None
            reading.over.set()

    async def _ask_for_time(self, timeout: float) -> int:
        readings = 0
        while True:
            asked = self._runtime.now()
            times = await self._servers.majority_of(Call(PING, (), ()), timeout)
            now, readings = self._runtime.now(), readings + 1
            proposal = self._proposal.learn(times, asked, now)
            if readings == _CLOCK_READINGS or self._proposal.at(now) is not None:
                return proposal

    async def _agree(self, attempt: RedlockAttempt, votes: Tally, timeout: float) -> bool:
        """Phase 2: raise the counters that are below the largest token to it. Whether a majority is there.

        Without it, this grant's token could be known to fewer than a majority of counters, and a later grant from the
        others could be given a smaller one.
        """
        low = votes.below_token()
        if not low:
            return True
        call = Call(RAISE, keys_of(attempt.claim.name).raise_, (attempt.owner, votes.token, self._token_ttl))
        raised = [answer for answer in await self._servers.ask_some(low, call, timeout) if answer == 1]
        return len(votes.granted) - len(low) + len(raised) >= self._quorum

    async def _leave_line(self, attempt: RedlockAttempt, votes: Tally, timeout: float) -> None:
        """Servers that granted have removed the waiter. One that did not, and has it in line, would let others wait for
        one who does not wait any more."""
        waiter, attempt.waiter = attempt.waiter, None
        if waiter is not None and votes.busy:
            keys = keys_of(attempt.claim.name)
            await self._servers.ask_some(
                sorted(votes.busy), Call(LEAVE, (keys.queue, keys.waiter(waiter)), (waiter,)), timeout
            )

    async def _take_back(self, attempt: RedlockAttempt, votes: Tally, timeout: float) -> None:
        """No majority: leave nothing behind, also where the answer was lost; then go on under a new owner."""
        servers = sorted(votes.granted.keys() | votes.unresolved, reverse=True)
        if servers:
            # A tombstone where the request may still be on its way; where all have answered, it would only be litter.
            answers = await self._servers.ask_some(
                servers, release_call(attempt, tombstone=bool(votes.unresolved)), timeout
            )
            attempt.reissue(lingers=any(isinstance(answer, RequestFailed) for answer in answers))

    async def _clear_leftovers(self, attempt: RedlockAttempt, timeout: float, *, everywhere: bool = False) -> None:
        """Try once more to withdraw what could not be taken back: left there, it would stand in our own way."""
        for owner in attempt.leftovers:
            try:
                await self._leases.withdraw_owner(attempt, owner, timeout, everywhere=everywhere)
            except RequestFailed:
                return

    def contender(self, attempt: RedlockAttempt, timeout: float) -> RedlockContender:
        return RedlockContender(self._servers, self._runtime, attempt, step_of(timeout))

    # -- holding ---------------------------------------------------------------------------------------------------

    async def release(self, attempt: RedlockAttempt, timeout: float) -> Found:
        attempt.token = None
        doubtful, step = attempt.unresolved, step_of(timeout)
        answers = await self._servers.let_go(release_call(attempt, tombstone=doubtful), step, everywhere=doubtful)
        found = quorum.found([as_found(answer) for answer in answers], self._quorum)
        if found is None:
            raise self._servers.too_few(failures(answers), may_have_happened=True, name=attempt.claim.name)
        await self._clear_leftovers(attempt, step, everywhere=True)
        if [answer for answer in answers if isinstance(answer, RequestFailed) and not isinstance(answer, LeftAlone)]:
            # Free for a majority, but not there: whoever waits in line at that server would not be woken until the ttl.
            # So it is tried again in the background. Not for one that was left alone: that may last for hours.
            note_freed(attempt, attempt.owner, answers)
            attempt.leftovers += (attempt.owner,)
        return found

    async def renew(self, attempt: RedlockAttempt, ttl: float, timeout: float) -> Found:
        (answer,) = await self._leases.renew([attempt], ttl, timeout)
        if isinstance(answer, RequestFailed):
            raise answer
        return answer

    # -- operators -------------------------------------------------------------------------------------------------

    async def inspect(self, name: str, timeout: float) -> LockState:
        replies = await self._look(name, timeout)
        return quorum.merged(name, [metadata.lock_state(name, reply) for reply in replies], self._quorum)

    async def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        """As on one server, over all that answer. ``inspect`` tells who has a majority."""
        seen = set[str]()
        failed: dict[int, Exception] = {}
        chosen = self._servers.worth_asking()
        for server in chosen:
            sent = self._runtime.now()
            try:
                async for name in scan(self._servers.channels[server], prefix, timeout):
                    if name not in seen:
                        seen.add(name)
                        yield name
            except EngineRefused as refusal:
                failed[server] = refusal
            except RequestFailed as failure:
                failed[server] = failure
                self._servers.failed(server, failure, sent)
        if len(chosen) - len(failed) < self._quorum:
            raise self._servers.too_few(failed, may_have_happened=False)

    async def _look(self, name: str, timeout: float) -> Sequence[Any]:
        keys = keys_of(name)
        return await self._servers.majority_of(Call(INSPECT, keys.inspect, keys.inspected), timeout, name=name)

    async def break_(self, name: str, timeout: float, token: int | None = None) -> bool:
        """With a token in two steps: find the owner that has it, then break that owner, on every server. An owner is
        never used again, so no later holder is hit, however long the second step takes."""
        keys, owner = keys_of(name), ""
        if token is not None:
            views = [metadata.blocks(reply) for reply in await self._look(name, timeout)]
            owner = quorum.owner_of(token, views, len(self._servers.channels)) or ""
            if not owner:
                return False
        call = Call(BREAK, keys.join, (keys.channel, "PUBLISH", self._token_ttl, "", owner, _SHORTEST_TOMBSTONE))
        return 1 in await self._servers.majority_of(call, timeout, name=name, changes=True)

    async def ping(self, timeout: float) -> None:
        await self._servers.majority_of(Call(PING, (), ()), timeout)

    async def close(self) -> None:
        for channel in self._servers.channels:
            await channel.close()


def _again(failure: RequestFailed | EngineRefused) -> RequestFailed | EngineRefused:
    """For another caller: a traceback grows with each that raises the same one."""
    if isinstance(failure, RequestFailed):
        again = RequestFailed(str(failure), may_have_happened=failure.may_have_happened, errors=failure.errors)
        again.__cause__ = failure.__cause__
        return again
    refused = EngineRefused(str(failure), name=failure.name)
    refused.__cause__ = failure.__cause__
    return refused
