"""One acquire: the local queue first, then the engine.

However it ends (a time-out, an error, Ctrl-C, a cancelled task), nothing stays behind: what may have been granted
without an answer is withdrawn by the watchdog, which does not depend on this caller or its event loop.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Hashable
from typing import TYPE_CHECKING, Any, Final

from holdfast._core import retry
from holdfast._core.grant import Grant
from holdfast._core.hold import Handle, Hold
from holdfast._core.local_queue import LocalWaiter, Turn
from holdfast._core.policy import Policy
from holdfast._runtime.base import Event
from holdfast.engines.base import EXCLUSIVE, READ, WRITE, Attempt, Busy, Contender, Granted, RequestFailed
from holdfast.errors import AcquireTimeout, EngineUnavailable, LockError, UsageError

if TYPE_CHECKING:
    from holdfast._core.core import Core

#: An acquire with a timeout may take this much longer, for a last look at a busy lock and for leaving its queue.
_GRACE: Final = 0.09
#: Of it, what the last look may take.
_LAST_LOOK: Final = 0.05
#: A request about a place in the queue gets at least this long.
_SHORTEST_LEAVE: Final = 0.02
#: Upper bound of one wait: a client that closes waits for its callers to notice, and has a second for everything.
_LONGEST_WAIT: Final = 0.5


class Acquisition:
    """One call of ``acquire`` that was not a re-entry. It occupies the name's local slot until its hold does."""

    __slots__ = (
        "_attempt", "_contender", "_core", "_deadline", "_failures", "_grant", "_policy", "_report", "_timeout",
        "_waiter", "broken_token", "suspected", "unanswered_since",
    )  # fmt: skip

    operation = "acquire"  #: what an error about its outcome calls it

    def __init__(self, core: Core, policy: Policy, timeout: float | None) -> None:
        self._core = core
        self._policy = policy
        self._timeout = timeout
        self._deadline = None if timeout is None else core.front.now() + timeout
        self._waiter: LocalWaiter | None = None
        self._attempt: Attempt | None = None
        self._grant: Grant | None = None
        self._contender: Contender | None = None
        #: When the first request was sent that the engine has not answered yet; None: it has answered them all.
        self.unanswered_since: float | None = None
        self._failures = 0  # of these requests
        self.suspected = False  #: ``break_`` may have taken what the engine has granted to it, or is about to
        self.broken_token: int | None = None  #: the token of that, if it is known
        self._report = None if core.reports is None else core.reports.attempt(policy, timeout)

    async def run(self, handle: Handle) -> None:
        core, policy = self._core, self._policy
        try:
            try:
                grant = None
                non_barging = False
                if not (policy.at_engine or core.engine.strict_order) and not self._occupy():
                    grant = await self._await_turn()
                    # This process has had its turn: it may not overtake those that wait at the engine.
                    non_barging = True
                inherited = grant is not None
                if grant is None:
                    under = None if policy.mode is EXCLUSIVE else self._nesting(handle._caller)
                    self._attempt = attempt = core.new_attempt(policy, non_barging=non_barging, under=under)
                    grant = await self._until_granted(attempt)
                self._grant = grant
                if self._contender is not None:
                    self._drop_contender()
                hold = self._begin_hold(grant, handle, inherited)
                if self._report is not None:
                    self._report.acquired(hold, inherited=inherited)
            except LockError as error:
                try:
                    await self._clean_up()
                finally:  # also if the clean-up is cancelled
                    core.give_up_slot(policy, self, self._unreachable_for(error))
                raise
        except LockError as error:
            self._report_failure(error)
            raise
        except BaseException as error:
            self._undo(handle)  # cancelled or interrupted, perhaps in the middle of its clean-up
            self._report_failure(error)
            raise
        finally:
            # Not before: from here on others may take its slot, and a grant that it inherited.
            core.acquiring.end(self)
            if core.closed:
                core.acquisition_left()

    def _begin_hold(self, grant: Grant, handle: Handle, inherited: bool) -> Hold:
        return self._core.begin_hold(grant, self._policy, self, handle, watched=inherited)

    def _nesting(self, caller: Hashable) -> Attempt | None:
        """What the caller itself holds of a read-write lock: a write allows its read; a read refuses its write."""
        if self._policy.mode is READ:
            hold = self._core.held_for_writing(self._policy, caller)
            return None if hold is None else hold.grant.attempt
        if self._policy.mode is WRITE:
            self._core.refuse_upgrade(self._policy, caller)
        return None

    def _report_failure(self, error: BaseException) -> None:
        if self._report is not None:
            self._report.failed(error)

    def _report_waiting(self) -> None:
        if self._report is not None:
            self._report.waiting()

    @property
    def waiter(self) -> LocalWaiter | None:
        """Its place in the local queue, if it was or is in one."""
        return self._waiter

    def suspect(self, key: str, broken: int | None) -> None:
        """``break_`` was used on ``key``, on the holder of the token ``broken`` if that is known."""
        if key == self._policy.key:
            self.suspected = True
            if broken is not None:
                self.broken_token = broken

    def notify_again(self) -> None:
        """Wake it if its turn has come: a signal may have ended the caller that should have."""
        waiter = self._waiter
        if waiter is not None and waiter.turn is not Turn.WAITING:
            waiter.event.set()

    @property
    def inherited(self) -> Grant | None:
        """The grant that was handed over to it and that is in no hold yet."""
        waiter = self._waiter
        grant = waiter.inherited if waiter is not None and waiter.inherits else None
        return grant if grant is not None and grant.hold is None else None

    # -- inside the process ----------------------------------------------------------------------------------------

    def _occupy(self) -> bool:
        """Take the name's slot, or else a place in its local queue."""
        core, key = self._core, self._policy.key
        with core.lock:
            if core.queue.occupy(key, self):
                return True
            core.repair_slot(key)
            if core.queue.occupy(key, self):
                return True
            if self._timeout == 0:
                if self._unreachable_since(core.queue.occupant(key)) is None:
                    raise self._busy()
                return True  # unknown whether it is busy: one try needs one answer, so ask the engine too
            self._waiter = LocalWaiter(self, self._policy, core.front.event(), core.front.now())
            core.queue.join(key, self._waiter)
            core.watchdog.check_slots()
            self._report_waiting()
            return False

    def _unreachable_since(self, occupant: object) -> float | None:
        """Since when the local caller ahead has had no answer; None if the engine answers it."""
        return occupant.unanswered_since if isinstance(occupant, Acquisition) else None

    def _is_unreachable(self, occupant: object, since: float) -> bool:
        """Whether the caller ahead has had no answer since, and for as long as this one would have waited for one."""
        unanswered = self._unreachable_since(occupant)
        if unanswered is None or unanswered > since:
            return False
        enough = min(self._policy.request_timeout, max((self._timeout or 0.0) / 2, _LAST_LOOK))
        return self._core.front.now() - unanswered >= enough

    async def _await_turn(self) -> Grant | None:
        """An inherited grant, or None: it is our turn to contend."""
        core, waiter = self._core, self._waiter
        assert waiter is not None
        await self._until_turn(waiter.event)
        with core.lock:
            if core.queue.leave(self._policy.key, waiter):
                ahead = core.queue.occupant(self._policy.key)
                raise self._unreachable_ahead() if self._is_unreachable(ahead, waiter.since) else self._busy()
        if waiter.turn is Turn.CLOSED:
            raise UsageError("this client was closed while waiting", name=self._policy.name)
        if waiter.turn is Turn.UNREACHABLE:
            raise self._unreachable_ahead()
        grant = waiter.inherited if waiter.inherits else None
        if grant is None or (grant.lost is None and grant.deadline > core.front.now()):
            return grant
        core.let_go(grant)
        return None

    async def _until_turn(self, turn: Event) -> None:
        await turn.wait(self._deadline)

    # -- at the engine ---------------------------------------------------------------------------------------------

    async def _until_granted(self, attempt: Attempt) -> Grant:
        core = self._core
        front = core.front
        while True:
            if core.closed:
                core.check_open()
            sent = front.now()
            if self.unanswered_since is None:
                self.unanswered_since = sent
            if not attempt.unresolved:
                self.suspected = False  # what was broken before cannot be what this request is granted
            try:
                answer = await self._ask(attempt, self._request_timeout(sent))
            except RequestFailed as failure:
                attempt.unresolved |= failure.may_have_happened
                await self._back_off(failure, attempt, self.unanswered_since)
                continue
            if answer.__class__ is Granted:
                grant = Grant(attempt, self._policy, sent, *answer)
                if grant.deadline > front.now():
                    return grant
                # The answer took longer than the lease (a pause between send and check): it is useless. The attempt
                # may ask again: if it still holds, its lease is extended.
                attempt.unresolved = True
                late = RequestFailed("the answer came after the lease had run out", may_have_happened=True)
                await self._back_off(late, attempt, self.unanswered_since)
                continue
            self.unanswered_since = None
            if isinstance(answer, Busy) and answer.impossible is not None:
                raise UsageError(
                    f"{self._policy.noun} {self._policy.name!r}: {answer.impossible}", name=self._policy.name
                )
            if self._deadline is not None and front.now() >= self._deadline:
                raise self._busy()
            await self._wait(attempt, sent)

    def _ask(self, attempt: Attempt, timeout: float) -> Coroutine[Any, Any, Granted | Busy]:
        """One request for the lock."""
        return self._core.session.acquire(attempt, timeout)

    async def _wait(self, attempt: Attempt, sent: float) -> None:
        if self._contender is None:
            self._report_waiting()
            with self._core.lock:
                self._core.watchdog.resume()
            self._contender = self._core.session.contender(attempt, self._policy.request_timeout)
        now = self._core.front.now()
        until = now + _LONGEST_WAIT
        if self._deadline is not None:
            until = min(until, self._deadline)
        self._contender.timeout = self._request_timeout(now)
        try:
            await self._contender.wait(until)
        except RequestFailed as failure:
            self.unanswered_since = sent
            await self._back_off(failure, attempt, sent)

    def _request_timeout(self, now: float) -> float:
        timeout = self._policy.request_timeout
        if not self._timeout or self._deadline is None:
            return timeout
        # Half of what is left: a reply lost in a black hole must leave time to ask again.
        return min(timeout, max((self._deadline - now) / 2, _LAST_LOOK))

    async def _back_off(self, failure: RequestFailed, attempt: Attempt, since: float) -> None:
        """Pause before the next try, or give up. The error says unreachable, never busy."""
        front, options = self._core.front, self._core.options
        limit = since + options.unavailable_after
        if self._deadline is not None:
            # "One try" still means one answer: a reply that was lost is asked for again.
            limit = min(limit, self._deadline if self._timeout else since + 2 * self._policy.request_timeout)
        self._failures += 1
        if not await retry.back_off(front, self._failures, limit, random.random):
            raise self._unavailable(attempt, front.now() - since, failure) from failure

    # -- giving up -------------------------------------------------------------------------------------------------

    async def _clean_up(self) -> None:
        """A definite end: nothing is held, unless an attempt is still under way somewhere."""
        attempt, contender = self._attempt, self._contender
        if attempt is not None and (attempt.unresolved or self.unanswered_since is not None):
            self._core.withdraw(attempt)
        elif attempt is not None and (contender is not None or attempt.queued):
            # Not waited for beyond the caller's own time: the watchdog removes a place that could not be left by then.
            if contender is None:
                self._contender = contender = self._core.session.contender(attempt, self._policy.request_timeout)
            contender.timeout = self._time_to_leave()
            if not await contender.leave():
                self._core.withdraw(attempt)
        self._drop_contender()

    def _time_to_leave(self) -> float:
        timeout = self._policy.request_timeout
        if not self._timeout or self._deadline is None:
            return timeout
        return min(timeout, max(self._deadline + _GRACE - self._core.front.now(), _SHORTEST_LEAVE))

    def _undo(self, handle: Handle) -> None:
        """Cancelled or interrupted, no matter where: the attempt may hold the lock, now or later."""
        core, waiter, grant = self._core, self._waiter, self._grant
        self._drop_contender()
        if waiter is not None:
            with core.lock:
                core.queue.leave(self._policy.key, waiter)
        if grant is not None and grant.hold is not None and grant.hold.handles.keys() <= {handle._key}:
            # Interrupted when the hold was there but not yet returned. Left there, the same caller would re-enter it: a
            # lock that the engine is asked to give to others.
            grant.hold.report_end("unknown")
            core.lose_grant(grant, "expired")
            grant.attempt.unresolved = True
            core.withdraw_grant(grant)
        elif self.inherited is not None:
            core.pass_on(self.inherited, self)
        else:
            self.withdraw()
        core.give_up_slot(self._policy, self, 0.0)

    def withdraw(self) -> None:
        """Have the watchdog make sure that this attempt holds nothing, now or later."""
        if self._attempt is not None:
            self._attempt.unresolved = True
            self._core.withdraw(self._attempt)

    def _unreachable_for(self, error: LockError) -> float:
        """For how long the engine could not be reached, as far as this caller knows."""
        if self.unanswered_since is None or not isinstance(error, EngineUnavailable):
            return 0.0
        return self._core.front.now() - self.unanswered_since

    def _drop_contender(self) -> None:
        if self._contender is not None:
            self._contender.abandon()
            self._contender = None  # not before: an interrupted clean-up does it again

    def _busy(self) -> AcquireTimeout:
        timeout = self._timeout or 0.0
        waited = f"stayed busy for {timeout:g} s" if timeout else "is busy"
        return AcquireTimeout(
            f"{self._policy.noun} {self._policy.name!r} {waited}", name=self._policy.name, timeout=timeout
        )

    def _unreachable_ahead(self) -> EngineUnavailable:
        return EngineUnavailable(
            f"lock {self._policy.name!r}: {self._core.engine!r} did not answer the caller ahead in this process",
            name=self._policy.name,
        )

    def _unavailable(self, attempt: Attempt, seconds: float, failure: RequestFailed) -> EngineUnavailable:
        name, engine, noun = self._policy.name, self._core.engine, self._policy.noun
        if attempt.unresolved:
            return retry.outcome_unknown(
                f"{noun} {name!r}: {engine!r} stopped answering for {seconds:.1f} s after the {self.operation} was "
                "sent; it may have been granted; holdfast goes on withdrawing it, and it ends by itself at its ttl",
                failure,
                operation=self.operation,
                name=name,
            )
        return retry.unavailable(
            f"{noun} {name!r}: {engine!r} could not serve for {seconds:.1f} s: {failure}",
            failure,
            name=name,
        )
