"""Redlock for a client's callers: each operation is one script on all servers, and the majority's answer counts.

Written once, on a server group and a runtime. On each server a script does the same as without Redlock. This file
adds the tally, the second phase that gives all servers the same token (rule 7), and the withdrawal of grants by a
minority.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Generic, TypeVar

from holdfast._runtime.base import Runtime
from holdfast.engines.base import Busy, Found, Granted, LockState, RequestFailed
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.connections.channel import Channel, close_all
from holdfast.engines.redis.connections.group import ServerGroup
from holdfast.engines.redis.dialect import grants, operators, waiters
from holdfast.engines.redis.dialect.leases import RELEASED, SHORTEST_TOMBSTONE
from holdfast.engines.redis.dialect.packing import counter_ttl
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.redlock import quorum
from holdfast.engines.redis.redlock.clocks import ServerClocks
from holdfast.engines.redis.redlock.contender import RedlockContender
from holdfast.engines.redis.redlock.leases import RedlockLeases, as_found, note_freed, release_call, step_of
from holdfast.engines.redis.redlock.proposal import Proposal
from holdfast.engines.redis.redlock.quorum import Tally
from holdfast.engines.redis.redlock.servers import Servers, Skipped, failures
from holdfast.engines.redis.session import scan
from holdfast.errors import EngineRefused

C = TypeVar("C", bound=Channel)


class RedlockSession(Generic[C]):
    """See :class:`holdfast.engines.base.Session`. ``labels`` name the servers in errors; ``time_of_day`` is this
    host's."""

    attempt = RedlockAttempt
    registers = None

    def __init__(
        self,
        group: ServerGroup[C],
        channels: Sequence[C],
        labels: Sequence[str],
        runtime: Runtime,
        token_ttl: float | None,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        self._servers = Servers(group, channels, labels, runtime)
        self._quorum = self._servers.quorum
        self._runtime = runtime
        self._counter_ttl = counter_ttl(token_ttl)
        self._leases = RedlockLeases(self._servers, self._counter_ttl)
        encoder = grants.AcquireEncoder(self._counter_ttl)
        self._encode_acquire, self._encode_proposed = encoder.encode, encoder.encode_proposed
        self._clocks = ServerClocks(self._servers, runtime, Proposal(time_of_day))

    # -- acquiring -------------------------------------------------------------------------------------------------

    async def acquire(self, attempt: RedlockAttempt, timeout: float) -> Granted | Busy:
        step = step_of(timeout)
        if attempt.leftovers:
            await self._clear_leftovers(attempt, step)
        proposal = self._clocks.known()
        answers = await self._vote(attempt, await self._clocks.propose(step) if proposal is None else proposal, step)
        if answers is None:
            return Busy()
        if (token := quorum.unanimous(answers)) is not None:
            attempt.token, attempt.waiter = token, None
            return Granted(token)
        votes = quorum.tally(answers)
        enough = len(votes.granted) >= self._quorum
        if enough and await self._agree(attempt, votes, step):
            attempt.token = votes.token
            attempt.unresolved |= bool(votes.unresolved)
            await self._leave_queues(attempt, votes, step)
            return Granted(votes.token)
        await self._take_back(attempt, votes, step)
        if enough or len(votes.granted) + len(votes.busy) < self._quorum:
            raise self._servers.too_few(votes.failed, may_have_happened=attempt.unresolved, name=attempt.claim.name)
        return Busy(votes.remaining(self._quorum))

    async def _vote(self, attempt: RedlockAttempt, proposal: int, timeout: float) -> list[Answer] | None:
        """Phase 1: what each server answers; None: waiters are before this attempt, which must not barge.

        A non-barging attempt asks the server with the queue first. Only that one: waiters that cannot reach it are in
        another queue, and if each queue yielded to the other, no waiter would acquire. And before the others: an
        attempt that takes four servers while a waiter is granted the one with the queue has overtaken that waiter.
        """
        claim = attempt.claim
        if claim.tokens == 1 and not (claim.non_barging or attempt.unresolved or attempt.queued):
            light = self._encode_proposed(claim.name, attempt.owner, claim.ttl, claim.description, proposal)
            if light is not None:
                return await self._vote_lightly(attempt, light, proposal, timeout)
        call = self._acquire_call(attempt, proposal)
        if not claim.non_barging:
            return await self._servers.ask(call, timeout)
        queue = self._servers.health.by_trust()[0]
        (first,) = await self._servers.ask_some(
            [queue], self._acquire_call(attempt, proposal, non_barging=True), timeout
        )
        return None if grants.is_not_its_turn(first) else await self._servers.ask_after(queue, first, call, timeout)

    async def _vote_lightly(self, attempt: RedlockAttempt, light: Call, proposal: int, timeout: float) -> list[Answer]:
        """As nearly every vote is: of an attempt that was not sent before, on a lock that is free."""
        answers = await self._servers.ask(light, timeout)
        if left := grants.left_to_acquire(answers):
            call = self._acquire_call(attempt, proposal)
            for server, answer in zip(left, await self._servers.ask_some(left, call, timeout), strict=True):
                answers[server] = answer
        return answers

    def _acquire_call(self, attempt: RedlockAttempt, proposal: int, *, non_barging: bool = False) -> Call:
        claim = attempt.claim
        return self._encode_acquire(
            claim.name,
            attempt.owner,
            claim.ttl,
            claim.tokens,
            claim.description,
            non_barging=non_barging,
            waiter=attempt.waiter,
            proposal=proposal,
        )

    async def _agree(self, attempt: RedlockAttempt, votes: Tally, timeout: float) -> bool:
        """Phase 2: raise the counters that are below the largest token to it. Whether a majority has it then.

        Without it, this grant's token could be known to fewer than a majority of counters, and a later grant from the
        others could be given a smaller one.
        """
        low = votes.below_token()
        if not low:
            return True
        call = grants.encode_raise(attempt.claim.name, attempt.owner, votes.token, self._counter_ttl)
        raised = [answer for answer in await self._servers.ask_some(low, call, timeout) if grants.decode_raise(answer)]
        return len(votes.granted) - len(low) + len(raised) >= self._quorum

    async def _leave_queues(self, attempt: RedlockAttempt, votes: Tally, timeout: float) -> None:
        """Servers that granted have removed the waiter. At a server that did not, it may still be in the queue: other
        waiters would wait for it there although it does not wait any more."""
        waiter, attempt.waiter = attempt.waiter, None
        if waiter is not None and votes.busy:
            call = waiters.encode_leave(attempt.claim.name, waiter)
            await self._servers.ask_some(sorted(votes.busy), call, timeout)

    async def _take_back(self, attempt: RedlockAttempt, votes: Tally, timeout: float) -> None:
        """No majority: withdraw from all servers, also where the answer was lost; then continue under a new owner."""
        servers = sorted(votes.granted.keys() | votes.unresolved, reverse=True)
        if servers:
            # A tombstone where the request may still be under way; where all have answered, it is not needed.
            answers = await self._servers.ask_some(
                servers, release_call(attempt, tombstone=bool(votes.unresolved)), timeout
            )
            attempt.reissue(lingers=any(isinstance(answer, RequestFailed) for answer in answers))

    async def _clear_leftovers(self, attempt: RedlockAttempt, timeout: float, *, everywhere: bool = False) -> None:
        """Retry withdrawals that have failed: their leftovers would make this attempt's own acquire busy."""
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
        unresolved, step = attempt.unresolved, step_of(timeout)
        call = release_call(attempt, tombstone=unresolved)
        answers = await self._servers.release(call, step, everywhere=unresolved)
        if answers.count(RELEASED) == len(answers) and not attempt.leftovers:
            return Found.OURS
        found = quorum.found([as_found(answer) for answer in answers], self._quorum)
        if found is None:
            raise self._servers.too_few(failures(answers), may_have_happened=True, name=attempt.claim.name)
        if attempt.leftovers:
            await self._clear_leftovers(attempt, step, everywhere=True)
        if [answer for answer in answers if isinstance(answer, RequestFailed) and not isinstance(answer, Skipped)]:
            # A majority is free, but this server is not: a waiter in its queue would not be woken before the ttl ends.
            # So the release is tried again in the background. Not at a skipped server: that may last for hours.
            note_freed(attempt, attempt.owner, answers)
            attempt.leftovers += (attempt.owner,)
        return found

    async def renew(self, attempt: RedlockAttempt, ttl: float, timeout: float) -> Found:
        step = timeout / 2
        replies = await self._servers.ask(self._leases.renewal([attempt], ttl), step)
        (answer,), absent = self._leases.renewed([attempt], ttl, replies)
        if absent:
            if call := self._leases.joining([attempt], ttl):
                await self._servers.ask_some(list(absent), call, step)
            await self._leases.undo_late_joins(absent, step)
        if isinstance(answer, RequestFailed):
            raise answer
        return answer

    # -- operators -------------------------------------------------------------------------------------------------

    async def inspect(self, name: str, timeout: float) -> LockState:
        replies = await self._look(name, timeout)
        return quorum.merged(name, [operators.decode_inspect(name, reply) for reply in replies], self._quorum)

    async def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        """As on one server, over all that answer. ``inspect`` shows which owner has a majority."""
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
        return await self._servers.majority_of(operators.encode_inspect(name), timeout, name=name)

    async def break_(self, name: str, timeout: float, token: int | None = None) -> bool:
        """With a token in two steps: find the owner that has it, then break that owner, on every server. An owner is
        never used again, so no later holder is broken, however long the second step takes."""
        owner = None
        if token is not None:
            views = [operators.decode_inspect_blocks(reply) for reply in await self._look(name, timeout)]
            owner = quorum.owner_of(token, views, len(self._servers.channels))
            if not owner:
                return False
        # The shortest tombstone: the ttl of the holder is unknown here. The script extends it to twice what is left.
        call = operators.encode_break(name, "PUBLISH", self._counter_ttl, owner=owner, tombstone=SHORTEST_TOMBSTONE)
        replies = await self._servers.majority_of(call, timeout, name=name, changes=True)
        return any(operators.decode_break(reply) for reply in replies)

    async def ping(self, timeout: float) -> None:
        await self._servers.majority_of(operators.encode_ping(), timeout)

    async def close(self) -> None:
        await close_all(self._servers.channels)
