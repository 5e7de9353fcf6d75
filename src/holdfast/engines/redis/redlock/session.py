"""Redlock at work: each operation is one script on all servers, and what a majority says counts.

Written once, on a fleet and a runtime. What a script does on one server is as ever; what is new is here: the tally, the
second phase that gives all servers the same token (RULES 7), and taking back what did not become a majority.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from holdfast._runtime.base import Runtime, Wakeup
from holdfast.engines.base import ALL_NAMES, Busy, Claim, Found, Granted, LockState, RequestFailed, Suspects
from holdfast.engines.redis import metadata
from holdfast.engines.redis.channel import Answer, Argument, Channel
from holdfast.engines.redis.fleet import Fleet
from holdfast.engines.redis.keys import is_side_key, keys_of
from holdfast.engines.redis.redlock import quorum
from holdfast.engines.redis.redlock.contender import RedlockContender
from holdfast.engines.redis.redlock.health import Health
from holdfast.engines.redis.redlock.proposal import Proposal
from holdfast.engines.redis.redlock.quorum import Tally
from holdfast.engines.redis.requests import Call
from holdfast.engines.redis.scripts import ACQUIRE, BREAK, INSPECT, JOIN, PING, RAISE, RELEASE, RENEW
from holdfast.engines.redis.session import CHUNK, FOUND, scan, tombstone_ms, withdrawal
from holdfast.errors import EngineRefused

C = TypeVar("C", bound=Channel)
#: An operation asks all servers up to this many times in a row: for their time, for the lock, for the token, and to take
#: it back. Each has its part of the time, which so stays far below the ttl.
_STEPS: Final = 4


class RedlockSession(Generic[C]):
    """See :class:`holdfast.engines.base.Session`. ``labels`` name the servers in errors."""

    def __init__(
        self,
        fleet: Fleet[C],
        channels: Sequence[C],
        labels: Sequence[str],
        runtime: Runtime,
        token_ttl: float | None,
    ) -> None:
        self._fleet = fleet
        self._channels = channels
        self._labels = labels
        self._runtime = runtime
        self._token_ttl = 0 if token_ttl is None else math.ceil(token_ttl * 1000)
        self._quorum = quorum.majority(len(channels))
        self._health = Health(len(channels), self._quorum)
        self._last_failures: dict[int, RequestFailed] = {}
        self._proposal = Proposal()

    # -- acquiring -------------------------------------------------------------------------------------------------

    async def acquire(self, claim: Claim, timeout: float) -> Granted | Busy:
        step = timeout / _STEPS
        votes = quorum.tally(await self._ask(self._acquire_call(claim, await self._propose(step)), step))
        enough = len(votes.granted) >= self._quorum and not votes.out_of_turn
        if enough and await self._agree(claim, votes, step):
            claim.token, claim.waiter = votes.token, None
            claim.unresolved |= bool(votes.unresolved)
            return Granted(votes.token)
        await self._take_back(claim, votes.granted.keys() | votes.unresolved, step)
        if enough or len(votes.granted) + len(votes.busy) < self._quorum:
            raise self._too_few(votes.failed, may_have_happened=claim.unresolved, name=claim.name)
        return Busy(votes.remaining(self._quorum))

    def _acquire_call(self, claim: Claim, proposal: int) -> Call:
        keys = keys_of(claim.name)
        names: Sequence[str] = tuple(keys.acquire)
        args: tuple[Argument, ...] = (
            claim.owner, math.ceil(claim.ttl * 1000), claim.tokens, claim.description, self._token_ttl,
            int(claim.polite), proposal,
        )  # fmt: skip
        if claim.waiter is not None:
            names, args = (*names, keys.waiter(claim.waiter)), (*args, claim.waiter)
        return Call(ACQUIRE, names, args)

    async def _propose(self, timeout: float) -> int:
        known = self._proposal.at(self._runtime.now())
        if known is not None:
            return known
        answers = await self._ask(Call(PING, (), ()), timeout)
        times = [answer for answer in answers if not isinstance(answer, Exception)]
        if len(times) < self._quorum:
            raise self._too_few(_failures(answers), may_have_happened=False)
        return self._proposal.learn(times, self._runtime.now())

    async def _agree(self, claim: Claim, votes: Tally, timeout: float) -> bool:
        """Phase 2: raise the counters that are below the largest token to it. Whether a majority is there.

        Without it, this grant's token could be known to fewer than a majority of counters, and a later grant from the
        others could be given a smaller one.
        """
        low = votes.below_token()
        if not low:
            return True
        call = Call(RAISE, keys_of(claim.name).raise_, (claim.owner, votes.token))
        raised = [answer for answer in await self._ask_some(low, call, timeout) if answer == 1]
        return len(votes.granted) - len(low) + len(raised) >= self._quorum

    async def _take_back(self, claim: Claim, servers: Iterable[int], timeout: float) -> None:
        """No majority: leave nothing behind, also where the answer was lost; then go on under a new owner."""
        asked = sorted(servers)
        if not asked:
            return
        keys = keys_of(claim.name)
        args = (claim.owner, keys.channel, "PUBLISH", tombstone_ms(claim))
        answers = await self._ask_some(asked, Call(RELEASE, tuple(keys.release), args), timeout)
        claim.reissue(lingers=any(isinstance(answer, RequestFailed) for answer in answers))

    def contender(self, claim: Claim, timeout: float) -> RedlockContender:
        return RedlockContender(self._channels, self._health, self._runtime, claim, timeout / _STEPS)

    # -- holding ---------------------------------------------------------------------------------------------------

    async def renew(self, claims: Sequence[Claim], ttl: float, timeout: float) -> Sequence[Found | RequestFailed]:
        answers: list[Found | RequestFailed] = []
        for start in range(0, len(claims), CHUNK):
            answers += await self._renew(claims[start : start + CHUNK], ttl, timeout / _STEPS)
        return answers

    async def _renew(self, claims: Sequence[Claim], ttl: float, timeout: float) -> list[Found | RequestFailed]:
        names = [key for claim in claims for key in keys_of(claim.name).renew]
        args: list[Argument] = [math.ceil(ttl * 1000), self._token_ttl, 0, *(claim.owner for claim in claims)]
        call = Call(RENEW, names, args, watched=[claim.name for claim in claims])
        replies = await self._ask_guarded(call, timeout)
        answers: list[Found | RequestFailed] = []
        absent: dict[int, list[Claim]] = {}
        for at, claim in enumerate(claims):
            each = [reply if isinstance(reply, Exception) else FOUND[reply[at]] for reply in replies]
            found = quorum.found(each, self._quorum)
            if found is Found.OURS:
                for server, answer in enumerate(each):
                    if answer is Found.GONE:
                        absent.setdefault(server, []).append(claim)
            answers.append(found or self._too_few(_failures(replies), may_have_happened=True, name=claim.name))
        for server, missing in absent.items():
            await self._join(server, missing, ttl, timeout)
        return answers

    async def _join(self, server: int, claims: Sequence[Claim], ttl: float, timeout: float) -> None:
        """A server that was away, or has lost its memory, takes part in what the majority has just confirmed."""
        names = [key for claim in claims for key in keys_of(claim.name).join]
        args: list[Argument] = [math.ceil(ttl * 1000), self._token_ttl]
        for claim in claims:
            args += (claim.owner, claim.token or 0, claim.tokens, claim.description)
        (answer,) = await self._ask_some([server], Call(JOIN, names, args), timeout)
        if isinstance(answer, RequestFailed) and answer.may_have_happened:
            for claim in claims:
                claim.unresolved = True  # a late duplicate must not bring back what is released by then

    async def release(self, claim: Claim, timeout: float) -> Found:
        keys = keys_of(claim.name)
        tombstone = tombstone_ms(claim) if claim.unresolved else 0
        call = Call(RELEASE, tuple(keys.release), (claim.owner, keys.channel, "PUBLISH", tombstone))
        answers = await self._ask(call, timeout / _STEPS)
        found = quorum.found([_as_found(answer) for answer in answers], self._quorum)
        if found is None:
            raise self._too_few(_failures(answers), may_have_happened=True, name=claim.name)
        return found

    async def withdraw(self, claim: Claim, timeout: float) -> Found:
        answers = await self._withdraw(claim, claim.owner, timeout)
        for owner in claim.remains:
            await self._withdraw(claim, owner, timeout)
            claim.remains = tuple(each for each in claim.remains if each != owner)
        return quorum.found([_as_found(answer) for answer in answers], self._quorum) or Found.GONE

    async def _withdraw(self, claim: Claim, owner: str, timeout: float) -> Sequence[Answer]:
        """From every server, not only from a majority: each that still had it would have to wait for its ttl."""
        names, args = withdrawal(claim, owner, "PUBLISH")
        answers = await self._ask(Call(RELEASE, names, args), timeout / _STEPS)
        if any(isinstance(answer, RequestFailed) for answer in answers):
            raise self._too_few(_failures(answers), may_have_happened=True, name=claim.name)
        return answers

    # -- operators -------------------------------------------------------------------------------------------------

    async def inspect(self, name: str, timeout: float) -> LockState:
        replies = await self._usable(Call(INSPECT, keys_of(name).inspect, ()), timeout, name=name)
        return quorum.merged(name, [metadata.lock_state(name, reply) for reply in replies], self._quorum)

    async def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        """As on one server, over all that answer. ``inspect`` tells who has a majority."""
        seen = set[str]()
        failed: dict[int, Exception] = {}
        for server, channel in enumerate(self._channels):
            try:
                async for name in scan(channel, prefix, timeout / _STEPS):
                    if name not in seen:
                        seen.add(name)
                        yield name
            except RequestFailed as failure:
                failed[server] = failure
        if len(self._channels) - len(failed) < self._quorum:
            raise self._too_few(failed, may_have_happened=False)

    async def break_(self, name: str, timeout: float) -> bool:
        keys = keys_of(name)
        call = Call(BREAK, keys.raise_, (keys.channel, "PUBLISH", self._token_ttl))
        return 1 in await self._usable(call, timeout, name=name, changes=True)

    async def ping(self, timeout: float) -> None:
        await self._usable(Call(PING, (), ()), timeout)

    async def doze(self, until: float, wakeup: Wakeup) -> Suspects:
        suspects = await self._fleet.doze(self._channels, until, wakeup)
        return suspects if suspects == ALL_NAMES else {key for key in suspects if not is_side_key(key)}

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()

    # -- asking ----------------------------------------------------------------------------------------------------

    async def _ask(self, call: Call, timeout: float) -> list[Answer]:
        """An answer of every server: those that are not worth asking have failed already."""
        chosen = self._health.worth_asking(self._runtime.now())
        if len(chosen) == len(self._channels):
            answers = await self._fleet.ask(self._channels, call, timeout)
            self._note(chosen, answers)
            return answers
        return self._spread(chosen, await self._ask_some(chosen, call, timeout))

    async def _ask_some(self, servers: Sequence[int], call: Call, timeout: float) -> list[Answer]:
        answers = await self._fleet.ask([self._channels[server] for server in servers], call, timeout)
        self._note(servers, answers)
        return answers

    async def _ask_guarded(self, call: Call, timeout: float) -> list[Answer]:
        chosen = self._health.worth_asking(self._runtime.now())
        requests = [(self._channels[server], [call]) for server in chosen]
        answers = [answer for (answer,) in await self._fleet.ask_each(requests, 0, timeout)]
        self._note(chosen, answers)
        return self._spread(chosen, answers)

    async def _usable(self, call: Call, timeout: float, *, name: str | None = None, changes: bool = False) -> list[Any]:
        """The answers of those that gave one, a majority at least."""
        answers = await self._ask(call, timeout / _STEPS)
        usable = [answer for answer in answers if not isinstance(answer, Exception)]
        if len(usable) < self._quorum:
            raise self._too_few(_failures(answers), may_have_happened=changes, name=name)
        return usable

    def _spread(self, servers: Sequence[int], answers: Sequence[Answer]) -> list[Answer]:
        given = dict(zip(servers, answers, strict=True))
        return [given[server] if server in given else self._skipped(server) for server in range(len(self._channels))]

    def _skipped(self, server: int) -> RequestFailed:
        return RequestFailed(str(self._last_failures.get(server, "failed a moment ago")), may_have_happened=False)

    def _note(self, servers: Sequence[int], answers: Sequence[Answer]) -> None:
        for server, answer in zip(servers, answers, strict=True):
            if isinstance(answer, RequestFailed):
                self._last_failures[server] = answer
                self._health.failed(server, self._runtime.now())
            else:
                self._health.answered(server)

    def _too_few(
        self, failed: Mapping[int, Exception], *, may_have_happened: bool, name: str | None = None
    ) -> RequestFailed:
        """No majority. Raises EngineRefused instead if there is none even when all servers can be reached."""
        refusals = [error for error in failed.values() if isinstance(error, EngineRefused)]
        if len(self._channels) - len(refusals) < self._quorum:
            raise EngineRefused(str(refusals[0]), name=name) from refusals[0]
        errors = {self._labels[server]: error for server, error in failed.items()}
        told = "; ".join(f"{label}: {error}" for label, error in errors.items()) or "the servers do not agree"
        return RequestFailed(
            f"no majority of {self._quorum} of {len(self._channels)} servers: {told}",
            may_have_happened=may_have_happened,
            errors=errors,
        )


def _failures(answers: Sequence[Answer]) -> dict[int, Exception]:
    return {server: answer for server, answer in enumerate(answers) if isinstance(answer, Exception)}


def _as_found(answer: Answer) -> Found | Exception:
    return answer if isinstance(answer, Exception) else FOUND[answer]
