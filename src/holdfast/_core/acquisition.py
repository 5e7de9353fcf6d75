"""One caller's way from "I want it" to a hold: the local queue first, then the engine.

Whatever happens on the way (a time-out, an error, Ctrl-C, a cancelled task) nothing stays behind: what may have been
granted without our knowing is withdrawn by the watchdog, which does not depend on this caller or its event loop.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from holdfast._core import backoff, lease_time
from holdfast._core.grant import Grant
from holdfast._core.hold import Hold
from holdfast._core.local_queue import LocalWaiter, Turn
from holdfast._core.policy import Policy
from holdfast.engines.base import Claim, Contender, Granted, RequestFailed
from holdfast.errors import AcquireTimeout, EngineUnavailable, LockError, UnavailableOutcomeUnknown, UsageError

if TYPE_CHECKING:
    from holdfast._core.core import Core

#: The last look at a busy lock may take this much longer than the caller's timeout.
_LAST_LOOK: Final = 0.1
#: Upper bound of one wait, so that a closed client is noticed.
_LONGEST_WAIT: Final = 3600.0


class Acquisition:
    """One call of ``acquire`` that was not a re-entry."""

    __slots__ = ("_contender", "_core", "_deadline", "_failures", "_policy", "_timeout", "_troubled_since")

    def __init__(self, core: Core, policy: Policy, timeout: float | None) -> None:
        self._core = core
        self._policy = policy
        self._timeout = timeout
        self._deadline = None if timeout is None else core.front.now() + timeout
        self._contender: Contender | None = None
        self._troubled_since: float | None = None
        self._failures = 0

    async def run(self) -> Hold:
        policy = self._policy
        if policy.fair:
            # Only the engine knows the order of arrival over all processes: every fair waiter queues there.
            return await self._contend(polite=False)
        waiter = self._join()
        if waiter is None:
            return await self._contend(polite=False)
        grant = await self._await_turn(waiter)
        if grant is not None:
            if grant.lost is None and grant.deadline > self._core.front.now():
                return self._core.begin_hold(grant, policy, watched=True)
            self._core.let_go(grant)
        # This process has had its turn: it may not overtake those who wait at the engine.
        return await self._contend(polite=True)

    # -- inside the process ----------------------------------------------------------------------------------------

    def _join(self) -> LocalWaiter | None:
        """Take the name's slot (None: go on to the engine), or a place in its local queue."""
        core, key = self._core, self._policy.key
        with core.lock:
            if core.queue.occupy(key):
                return None
            if self._timeout == 0:
                raise self._busy()
            waiter = LocalWaiter(self._policy, core.front.event())
            core.queue.join(key, waiter)
            return waiter

    async def _await_turn(self, waiter: LocalWaiter) -> Grant | None:
        """An inherited grant, or None: it is our turn to contend."""
        core = self._core
        try:
            await waiter.event.wait(self._deadline)
        except BaseException:
            self._decline(waiter)
            raise
        with core.lock:
            if core.queue.leave(self._policy.key, waiter):
                raise self._busy()
        if waiter.turn is Turn.CLOSED:
            raise UsageError("this client was closed while waiting", name=self._policy.name)
        if waiter.turn is Turn.UNREACHABLE:
            raise EngineUnavailable(
                f"lock {self._policy.name!r}: the engine could not be reached by the caller ahead in this process",
                name=self._policy.name,
            )
        return waiter.gift

    def _decline(self, waiter: LocalWaiter) -> None:
        """Cancelled while waiting: if the turn had come already, pass it on."""
        core = self._core
        with core.lock:
            if core.queue.leave(self._policy.key, waiter):
                return
        if waiter.gift is not None:
            core.pass_on(waiter.gift)
        elif waiter.turn is Turn.CONTEND:
            core.vacate(self._policy)

    # -- at the engine ---------------------------------------------------------------------------------------------

    async def _contend(self, *, polite: bool) -> Hold:
        core, policy = self._core, self._policy
        claim = core.new_claim(policy, polite=polite)
        try:
            grant = await self._until_granted(claim)
            hold = core.begin_hold(grant, policy, watched=False)
        except LockError as error:
            try:
                await self._clean_up(claim)
            finally:  # also if the clean-up is cancelled: a slot that nobody vacates would block the process for ever
                if isinstance(error, EngineUnavailable):
                    core.turn_away(policy)
                else:
                    core.vacate(policy)
            raise
        except BaseException:
            # Cancelled or interrupted, perhaps between request and reply: the claim may hold the lock, now or later.
            claim.unresolved = True
            self._drop_contender()
            core.withdraw(claim)
            core.vacate(policy)
            raise
        self._drop_contender()
        return hold

    async def _until_granted(self, claim: Claim) -> Grant:
        core = self._core
        front, session = core.front, core.session
        while True:
            core.check_open()
            sent = front.now()
            try:
                answer = await session.acquire(claim, self._request_timeout(sent))
            except RequestFailed as failure:
                claim.unresolved |= failure.may_have_happened
                await self._bear(failure, claim, sent)
                continue
            if isinstance(answer, Granted):
                grant = Grant(claim, self._policy, sent, answer.token)
                if grant.deadline > front.now():
                    return grant
                # The answer took longer than the lease: it is worth nothing (a pause between send and check). The same
                # claim may ask again: if it still holds, its lease is extended.
                late = RequestFailed("the answer came after the lease had run out", may_have_happened=True)
                await self._bear(late, claim, sent)
                continue
            self._troubled_since = None
            if self._deadline is not None and front.now() >= self._deadline:
                raise self._busy()
            await self._wait(claim, sent)

    async def _wait(self, claim: Claim, sent: float) -> None:
        if self._contender is None:
            self._contender = self._core.session.contender(claim, self._request_timeout(None))
        until = sent + _LONGEST_WAIT if self._deadline is None else self._deadline
        try:
            await self._contender.wait(until)
        except RequestFailed as failure:
            await self._bear(failure, claim, sent)

    def _request_timeout(self, now: float | None) -> float:
        timeout = lease_time.request_timeout(self._core.options.request_timeout, self._policy.ttl)
        if now is None or self._deadline is None or not self._timeout:
            return timeout
        # Half of what is left: a reply lost in a black hole must leave time to ask again.
        return min(timeout, max((self._deadline - now) / 2, _LAST_LOOK))

    async def _bear(self, failure: RequestFailed, claim: Claim, sent: float) -> None:
        """Pause before the next try, or give up: unreachable is not busy."""
        front, options = self._core.front, self._core.options
        since = self._troubled_since = sent if self._troubled_since is None else self._troubled_since
        limit = since + options.unavailable_after
        if self._deadline is not None:
            # "One try" still means one answer: a reply that was lost is asked for again.
            limit = min(limit, self._deadline if self._timeout else since + 2 * self._request_timeout(None))
        now = front.now()
        if now >= limit:
            raise self._unavailable(claim, now - since) from failure
        self._failures += 1
        await front.sleep_until(min(limit, now + backoff.pause(self._failures, random.random)))

    # -- giving up -------------------------------------------------------------------------------------------------

    async def _clean_up(self, claim: Claim) -> None:
        contender, self._contender = self._contender, None
        if claim.unresolved:
            if contender is not None:
                contender.abandon()
            self._core.withdraw(claim)
        elif contender is not None:
            await contender.leave()

    def _drop_contender(self) -> None:
        contender, self._contender = self._contender, None
        if contender is not None:
            contender.abandon()

    def _busy(self) -> AcquireTimeout:
        timeout = self._timeout or 0.0
        waited = f"stayed busy for {timeout:g} s" if timeout else "is busy"
        return AcquireTimeout(f"lock {self._policy.name!r} {waited}", name=self._policy.name, timeout=timeout)

    def _unavailable(self, claim: Claim, seconds: float) -> EngineUnavailable:
        name, engine = self._policy.name, self._core.engine
        if claim.unresolved:
            return UnavailableOutcomeUnknown(
                f"lock {name!r}: {engine!r} stopped answering for {seconds:.1f} s after the acquire was sent, so it may have "
                "been granted; holdfast goes on withdrawing it, and it ends by itself at its ttl",
                operation="acquire",
                name=name,
            )
        return EngineUnavailable(f"lock {name!r}: {engine!r} could not be reached for {seconds:.1f} s", name=name)
