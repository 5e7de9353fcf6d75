"""Redlock at work: each operation is one script on all servers, and what a majority says counts.

Written once, on a fleet and a runtime. What a script does on one server is as ever; what is new is here: the tally, the
second phase that gives all servers the same token (RULES 7), and taking back what did not become a majority.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from holdfast._runtime.base import Event, Runtime, Wakeup
from holdfast.engines.base import (
    ALL_NAMES,
    Busy,
    Claim,
    Found,
    Granted,
    LockState,
    RequestFailed,
    Suspects,
    Withdrawn,
)
from holdfast.engines.redis.connections.channel import Channel
from holdfast.engines.redis.connections.group import Fleet
from holdfast.engines.redis.dialect import metadata
from holdfast.engines.redis.dialect.keys import is_side_key, keys_of
from holdfast.engines.redis.dialect.packing import Argument
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Arguments, Call, Closing
from holdfast.engines.redis.redlock import quorum
from holdfast.engines.redis.redlock.contender import RedlockContender
from holdfast.engines.redis.redlock.proposal import Proposal
from holdfast.engines.redis.redlock.quorum import Tally
from holdfast.engines.redis.redlock.servers import LeftAlone, Servers, failures
from holdfast.engines.redis.scripts import ACQUIRE, BREAK, INSPECT, JOIN, LEAVE, PING, RAISE, RELEASE, RENEW
from holdfast.engines.redis.session import CHUNK, FOUND, scan, tombstone_ms, withdrawal
from holdfast.errors import EngineRefused

C = TypeVar("C", bound=Channel)
#: To acquire is to ask all servers several times in a row: for their time (seldom), for the lock, for the token
#: (seldom), and to take it back. Each has this part of the time, which so stays far below the ttl; but if it is short
#: anyway, enough for a server that is merely busy. To release has the same steps: a connection need not be told anew
#: each time how long to wait.
_STEPS: Final = 4
_SHORTEST_STEP: Final = 0.1
#: How often the servers are asked for their time, if the answers come too late to be kept.
_CLOCK_READINGS: Final = 3
#: The watchdog renews to less only to ask whether a lock is still held.
_SHORTEST_LEASE: Final = 0.1
#: Of who was broken, in ms: nobody here knows his ttl.
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
        self._quorum = self._servers.quorum
        self._runtime = runtime
        self._token_ttl = 0 if token_ttl is None else math.ceil(token_ttl * 1000)
        self._proposal = Proposal(time_of_day)
        self._reading: _Reading | None = None

    # -- acquiring -------------------------------------------------------------------------------------------------

    async def acquire(self, claim: Claim, timeout: float) -> Granted | Busy:
        step = _step(timeout)
        await self._clear_remains(claim, step)
        answers = await self._vote(claim, await self._propose(step), step)
        if answers is None:
            return Busy()
        votes = quorum.tally(answers)
        enough = len(votes.granted) >= self._quorum
        if enough and await self._agree(claim, votes, step):
            claim.token = votes.token
            claim.unresolved |= bool(votes.unresolved)
            await self._leave_line(claim, votes, step)
            return Granted(votes.token)
        await self._take_back(claim, votes, step)
        if enough or len(votes.granted) + len(votes.busy) < self._quorum:
            raise self._servers.too_few(votes.failed, may_have_happened=claim.unresolved, name=claim.name)
        return Busy(votes.remaining(self._quorum))

    async def _vote(self, claim: Claim, proposal: int, timeout: float) -> list[Answer] | None:
        """Phase 1: what each server says to ``claim``; None: others are in line before it, whom it must not overtake.

        To be polite is to ask the server with the line first. Only that one: those who cannot reach it stand in
        another line, and if each let the other go first, nobody would go. And before the others: a claim that takes
        four servers while somebody else is given the one with the line has overtaken him.
        """
        call = self._acquire_call(claim, proposal)
        if not claim.polite:
            return await self._servers.ask(call, timeout)
        line = self._servers.health.by_trust()[0]
        (first,) = await self._servers.ask_some([line], self._acquire_call(claim, proposal, polite=True), timeout)
        return None if first == _NOT_YOUR_TURN else await self._servers.ask_after(line, first, call, timeout)

    def _acquire_call(self, claim: Claim, proposal: int, *, polite: bool = False) -> Call:
        keys, ttl = keys_of(claim.name), math.ceil(claim.ttl * 1000)
        names: Sequence[str] = keys.acquire
        args: Sequence[Argument] = Arguments(
            claim.owner, Closing.of(ttl, claim.tokens, claim.description, self._token_ttl, int(polite), proposal)
        )
        if claim.waiter is not None:
            names, args = (*names, keys.waiter(claim.waiter)), (*args, claim.waiter)
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

    async def _agree(self, claim: Claim, votes: Tally, timeout: float) -> bool:
        """Phase 2: raise the counters that are below the largest token to it. Whether a majority is there.

        Without it, this grant's token could be known to fewer than a majority of counters, and a later grant from the
        others could be given a smaller one.
        """
        low = votes.below_token()
        if not low:
            return True
        call = Call(RAISE, keys_of(claim.name).raise_, (claim.owner, votes.token, self._token_ttl))
        raised = [answer for answer in await self._servers.ask_some(low, call, timeout) if answer == 1]
        return len(votes.granted) - len(low) + len(raised) >= self._quorum

    async def _leave_line(self, claim: Claim, votes: Tally, timeout: float) -> None:
        """Servers that granted have removed the waiter. One that did not, and has it in line, would let others wait for
        one who does not wait any more."""
        waiter, claim.waiter = claim.waiter, None
        if waiter is not None and votes.busy:
            keys = keys_of(claim.name)
            await self._servers.ask_some(
                sorted(votes.busy), Call(LEAVE, (keys.queue, keys.waiter(waiter)), (waiter,)), timeout
            )

    async def _take_back(self, claim: Claim, votes: Tally, timeout: float) -> None:
        """No majority: leave nothing behind, also where the answer was lost; then go on under a new owner."""
        servers = sorted(votes.granted.keys() | votes.unresolved, reverse=True)
        if servers:
            # A tombstone where the request may still be on its way; where all have answered, it would only be litter.
            answers = await self._servers.ask_some(
                servers, _release_call(claim, tombstone=bool(votes.unresolved)), timeout
            )
            claim.reissue(lingers=any(isinstance(answer, RequestFailed) for answer in answers))

    async def _clear_remains(self, claim: Claim, timeout: float, *, everywhere: bool = False) -> None:
        """Try once more to withdraw what could not be taken back: left there, it would stand in our own way."""
        for owner in claim.remains:
            try:
                await self._withdraw(claim, owner, timeout, everywhere=everywhere)
            except RequestFailed:
                return

    def contender(self, claim: Claim, timeout: float) -> RedlockContender:
        return RedlockContender(self._servers, self._runtime, claim, _step(timeout))

    # -- holding ---------------------------------------------------------------------------------------------------

    async def renew(self, claims: Sequence[Claim], ttl: float, timeout: float) -> Sequence[Found | RequestFailed]:
        answers: list[Found | RequestFailed] = []
        for start in range(0, len(claims), CHUNK):
            answers += await self._renew(claims[start : start + CHUNK], ttl, timeout / 2)
        return answers

    async def _renew(self, claims: Sequence[Claim], ttl: float, timeout: float) -> list[Found | RequestFailed]:
        names = [key for claim in claims for key in keys_of(claim.name).renew]
        args: list[Argument] = [math.ceil(ttl * 1000), self._token_ttl, 0, *(claim.owner for claim in claims)]
        call = Call(RENEW, names, args, watched=[claim.name for claim in claims])
        replies = await self._servers.ask_guarded(call, timeout)
        answers: list[Found | RequestFailed] = []
        absent: dict[int, list[Claim]] = {}
        for at, claim in enumerate(claims):
            each = [reply if isinstance(reply, Exception) else FOUND[reply[at]] for reply in replies]
            found = quorum.found(each, self._quorum)
            if found is Found.OURS and ttl >= _SHORTEST_LEASE:
                for server, answer in enumerate(each):
                    if answer is Found.GONE:
                        absent.setdefault(server, []).append(claim)
            answers.append(found or self._unrenewed(replies))
        if absent:
            await self._join(absent, ttl, timeout)
        return answers

    def _unrenewed(self, replies: Sequence[Answer]) -> RequestFailed:
        failure = self._servers.too_few(failures(replies), may_have_happened=True)
        if isinstance(failure, RequestFailed):
            return failure
        # Tried again until the lease runs out: an ACL can be mended, a lease cannot.
        again = RequestFailed(str(failure), may_have_happened=False)
        again.__cause__ = failure
        return again

    async def _join(self, absent: Mapping[int, Sequence[Claim]], ttl: float, timeout: float) -> None:
        """Servers that were away, or have lost their memory, take part in what the majority has just confirmed.

        Another thread may release the lock meanwhile, and be faster: then a server would have a lock that is nobody's
        any more. So a claim says before its release is sent that it is over, and here one looks before and after.
        """
        await self._servers.ask_each(
            {server: call for server, claims in absent.items() if (call := self._join_call(claims, ttl))}, timeout
        )
        for server, claims in absent.items():
            for claim in claims:
                if claim.token is None:
                    await self._servers.ask_some([server], _release_call(claim, tombstone=True), timeout)

    def _join_call(self, claims: Sequence[Claim], ttl: float) -> Call | None:
        held = [(claim, token) for claim in claims if (token := claim.token) is not None]
        args: list[Argument] = [math.ceil(ttl * 1000), self._token_ttl]
        for claim, token in held:
            claim.unresolved = True  # a late duplicate of this must not bring back what is released by then
            args += (claim.owner, token, claim.tokens, claim.description)
        names = [key for claim, _ in held for key in keys_of(claim.name).join]
        return Call(JOIN, names, args, watched=[claim.name for claim, _ in held]) if held else None

    async def release(self, claim: Claim, timeout: float) -> Found:
        claim.token = None
        doubtful, step = claim.unresolved, _step(timeout)
        answers = await self._servers.let_go(_release_call(claim, tombstone=doubtful), step, everywhere=doubtful)
        found = quorum.found([_as_found(answer) for answer in answers], self._quorum)
        if found is None:
            raise self._servers.too_few(failures(answers), may_have_happened=True, name=claim.name)
        await self._clear_remains(claim, step, everywhere=True)
        if [answer for answer in answers if isinstance(answer, RequestFailed) and not isinstance(answer, LeftAlone)]:
            # Free for a majority, but not there: whoever waits in line at that server would not be woken until the ttl.
            # So it is tried again in the background. Not for one that was left alone: that may last for hours.
            _note_freed(claim, claim.owner, answers)
            claim.remains += (claim.owner,)
        return found

    async def withdraw(self, claims: Sequence[Claim], timeout: float) -> Sequence[Withdrawn]:
        """All of it at once, in one buffer for each server. One that is silent costs a part of the time, once, and then
        is left alone for a while; the others are rid of everything nevertheless."""
        for claim in claims:
            claim.token = None
        wanted = [(claim, owner) for claim in claims for owner in (*claim.remains, claim.owner)]
        answers = await self._servers.let_go_all(
            [_withdrawal(claim, owner) for claim, owner in wanted],
            [_where_freed(claim, owner) for claim, owner in wanted],
            _step(timeout),
        )
        found = {
            (claim, owner): self._withdrawn(claim, owner, each)
            for (claim, owner), each in zip(wanted, answers, strict=True)
        }
        lingers = RequestFailed("something of an earlier attempt could not be withdrawn", may_have_happened=True)
        return [lingers if claim.remains else found[claim, claim.owner] for claim in claims]

    async def _withdraw(self, claim: Claim, owner: str, timeout: float, *, everywhere: bool = False) -> None:
        done = _where_freed(claim, owner)
        answers = await self._servers.let_go(_withdrawal(claim, owner), timeout, everywhere=everywhere, done=done)
        outcome = self._withdrawn(claim, owner, answers)
        if isinstance(outcome, Exception):
            raise outcome

    def _withdrawn(self, claim: Claim, owner: str, answers: Sequence[Answer]) -> Withdrawn:
        """From every server, not only from a majority: each that still had it would have to wait for its ttl. One that
        has answered is not asked again: while another is away, this is repeated for as long."""
        _note_freed(claim, owner, answers)
        if any(isinstance(answer, RequestFailed) for answer in answers):
            return self._servers.failure(failures(answers), may_have_happened=True, name=claim.name)
        claim.remains = tuple(each for each in claim.remains if each != owner)
        return quorum.found([_as_found(answer) for answer in answers], self._quorum) or Found.GONE

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

    async def doze(self, until: float, wakeup: Wakeup) -> Suspects:
        suspects = await self._servers.fleet.doze(self._servers.channels, until, wakeup)
        return suspects if suspects == ALL_NAMES else {key for key in suspects if not is_side_key(key)}

    async def close(self) -> None:
        for channel in self._servers.channels:
            await channel.close()


def _step(timeout: float) -> float:
    return max(timeout / _STEPS, min(timeout, _SHORTEST_STEP))


def _release_call(claim: Claim, *, tombstone: bool) -> Call:
    keys = keys_of(claim.name)
    closing = Closing.of(keys.channel, "PUBLISH", tombstone_ms(claim)) if tombstone else keys.published("PUBLISH")
    return Call(RELEASE, keys.release, Arguments(claim.owner, closing))


def _withdrawal(claim: Claim, owner: str) -> Call:
    return Call(RELEASE, *withdrawal(claim, owner, "PUBLISH"))


def _where_freed(claim: Claim, owner: str) -> set[int]:
    return {server for freed, server in claim.freed if freed == owner}


def _again(failure: RequestFailed | EngineRefused) -> RequestFailed | EngineRefused:
    """For another caller: a traceback grows with each that raises the same one."""
    if isinstance(failure, RequestFailed):
        again = RequestFailed(str(failure), may_have_happened=failure.may_have_happened, errors=failure.errors)
        again.__cause__ = failure.__cause__
        return again
    refused = EngineRefused(str(failure), name=failure.name)
    refused.__cause__ = failure.__cause__
    return refused


def _note_freed(claim: Claim, owner: str, answers: Sequence[Answer]) -> None:
    claim.freed |= {(owner, server) for server, answer in enumerate(answers) if not isinstance(answer, RequestFailed)}


def _as_found(answer: Answer) -> Found | Exception:
    return answer if isinstance(answer, Exception) else FOUND[answer]
