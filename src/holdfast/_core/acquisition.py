"""One acquire: the local queue first, then the engine.

However it ends (a time-out, an error, Ctrl-C, a cancelled task), nothing stays behind: what may have been granted
without an answer is withdrawn by the watchdog, which does not depend on this caller or its event loop.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from holdfast._core import acquire_errors as errors
from holdfast._core import acquire_time, lease_time, retry
from holdfast._core.grant import DirectGrant, Grant
from holdfast._core.hold import Handle, Hold
from holdfast._core.installing import install
from holdfast._core.local_turn import LocalTurn
from holdfast._core.operations import Call
from holdfast._runtime.base import DONE, Rest
from holdfast.engines.base import Attempt, Busy, Contender, Granted, Handed, RequestFailed
from holdfast.errors import EngineUnavailable, LockError, UsageError

if TYPE_CHECKING:
    from holdfast._core.core import Core
    from holdfast._core.direct_hold import DirectHold
    from holdfast._core.policy import Policy

#: Upper bound of one wait: a client that closes waits for its callers to notice, and has a second for everything.
_LONGEST_WAIT: Final = 0.5
#: What the engine has answered to a request; None: there is no answer yet.
Answer = Any


class Acquisition(LocalTurn):
    """One call of ``acquire`` that was not a re-entry. It occupies the name's local slot until its hold does."""

    operation = "acquire"  #: what an error about its outcome calls it

    # What most never need has its first value here, and is stored once it differs.
    _attempt: Attempt | None = None
    _grant: Grant | None = None
    _contender: Contender | None = None
    _key = -1  # of its handle
    _failures = 0  # of the requests since ``unanswered_since``
    suspected = False  #: ``break_`` may have taken what the engine has granted to it, or is about to
    broken_token: int | None = None  #: the token of that, if it is known

    def __init__(self, core: Core, policy: Policy, timeout: float | None, asked: DirectHold | None = None) -> None:
        super().__init__(core, policy, timeout, None if asked is None else asked.sent)
        self._asked = asked  # by which the engine was asked directly
        if asked is not None:
            self.unanswered_since = asked.sent

    def start(self, handle: Handle) -> Rest:
        """For a name that others want, too. DONE: another caller was offered its grant, has not accepted it, and it is
        this one's now. Else the rest of the acquire, to be run."""
        core = self._core
        if self._policy.key not in core.queue.offers:
            return core.begin(self, handle)
        acquiring, call = core.acquiring, Call()
        try:
            acquiring.running[self] = weakref.ref(call, acquiring.on_garbage)
            self._key = handle._key
            if (grant := self._take_back()) is not None:
                self._grant = grant
                self._begin_hold(grant, handle, True, core.now())
                acquiring.running.pop(self, None)  # as at the end of run
                if core.closed:
                    core.acquisition_left(self)
                return DONE
        except BaseException as error:
            try:
                self._undo_after(error)
            finally:
                del call  # the traceback keeps this frame: see operations.py
            raise
        return core.begin(self, handle)

    async def run(self, handle: Handle, answer: Answer = None) -> None:
        """``answer``: to the direct request, if there was one."""
        core, policy = self._core, self._policy
        self._key = handle._key
        try:
            try:
                if isinstance(answer, LockError):
                    raise answer
                await self._go_on(handle, answer)
            except LockError as error:
                try:
                    await self._clean_up()
                finally:  # also if the clean-up is cancelled
                    core.give_up_slot(policy, self, self._unreachable_for(error))
                raise
        except LockError as error:
            self._report_failure(error)
            core.acquisition_left(self)
            raise
        except BaseException as error:
            self._undo_after(error)
            raise
        # Not before: from here on others may take its slot, and a grant that it inherited. Not in a ``finally``: if a
        # signal interrupts the clean-up, the watchdog does it.
        core.acquiring.running.pop(self, None)
        if core.closed:
            core.acquisition_left(self)

    def _undo_after(self, error: BaseException) -> None:
        """Cancelled or interrupted, perhaps in the middle of its clean-up."""
        self._undo()
        self._report_failure(error)
        self._core.acquisition_left(self)

    async def _go_on(self, handle: Handle, answer: Answer) -> None:
        """From wherever it has got to. ``answer``: to the first request, if it was sent already."""
        core, policy = self._core, self._policy
        grant: Grant | None = None
        inherited = non_barging = False
        if self._asked is None:
            if not (policy.at_engine or core.engine.strict_order) and not self._occupy():
                grant = await self._await_turn()
                inherited = grant is not None
                # This process has had its turn: it may not overtake those that wait at the engine.
                non_barging = True
            if grant is None:
                under = core.nesting(policy, handle._caller)
                self._attempt = core.new_attempt(policy, non_barging=non_barging, under=under)
        if grant is None:
            grant = await self._until_granted(self._known_attempt(), answer)
        self._grant = grant
        if self._contender is not None:
            self._drop_contender()
        hold = self._begin_hold(grant, handle, inherited, core.now())
        if self._report is not None:
            self._report.acquired(hold, inherited=inherited)

    def _begin_hold(self, grant: Grant, handle: Handle, inherited: bool, now: float) -> Hold:
        hold = Hold(self._core, grant, self._policy, handle._caller, now)
        install(self._core, hold, grant, self, handle, inherited)
        return hold

    def finish(self) -> None:
        """A signal has ended its call in the middle of its clean-up. Called by the watchdog, which does it all again.

        No I/O.
        """
        contender, self._contender = self._contender, None
        for each in (contender, self._attempt):
            if each is not None:
                self._core.front.dispatch(each.abandon)  # they belong to the callers' side
        self._undo(drop=False)
        self._core.repair_slot(self._policy.key)  # of a hold that it had begun, and begun to end

    def _known_attempt(self) -> Attempt:
        """What is known to the engine of this acquisition; made now, if the engine was asked directly."""
        if self._attempt is None:
            assert self._asked is not None
            self._attempt = self._asked.attempt()
        return self._attempt

    def _report_failure(self, error: BaseException) -> None:
        if self._report is not None:
            self._report.failed(error)

    def _report_waiting(self) -> None:
        if self._report is not None:
            self._report.waiting()

    def suspect(self, key: str, broken: int | None) -> None:
        """``break_`` was used on ``key``, on the holder of the token ``broken`` if that is known."""
        if key == self._policy.key:
            self.suspected = True
            self._core.queue.keep(key, self._waiter)  # another caller would not know of it
            if broken is not None:
                self.broken_token = broken

    # -- at the engine ---------------------------------------------------------------------------------------------

    async def _until_granted(self, attempt: Attempt, answer: Answer = None) -> Grant:
        """``answer``: to the first request, if it was sent already."""
        core = self._core
        front = core.front
        sent = self.unanswered_since or 0.0
        attempt.waits = self._timeout != 0
        while True:
            if answer is None:
                if core.closed:
                    core.check_open()
                sent = front.now()
                if self.unanswered_since is None:
                    self.unanswered_since = sent
                if not attempt.unresolved:
                    self.suspected = False  # what was broken before cannot be what this request is granted
                try:
                    answer = await self._ask(attempt, self._request_timeout(sent))
                except RequestFailed as failed:
                    answer = failed
                if answer.__class__ is Granted:
                    grant = Grant(attempt, self._policy, sent, *answer)
                    if grant.deadline > front.now():
                        return grant
                    answer = errors.late()  # the attempt may ask again: if it still holds, its lease is extended
            if isinstance(answer, RequestFailed):
                attempt.unresolved |= answer.may_have_happened
                failure, answer = answer, None
                assert self.unanswered_since is not None
                await self._back_off(failure, attempt, self.unanswered_since)
                continue
            self.unanswered_since = None
            if isinstance(answer, Busy) and answer.impossible is not None:
                raise UsageError(f"{self._policy.title}: {answer.impossible}", name=self._policy.name)
            answer = None
            if self._deadline is not None and front.now() >= self._deadline:
                raise errors.busy(self._policy, self._timeout)
            handed = await self._wait(attempt, sent)
            if handed is not None:
                if (given := self._accepted(attempt, handed)) is not None:
                    return given
            elif self._stayed_busy(sent):
                raise errors.busy(self._policy, self._timeout)

    def _accepted(self, attempt: Attempt, handed: Handed) -> Grant | None:
        """The grant that came without a request; None: ask, which finds it.

        Its lease is short until the first renewal. So a lease that is not to be renewed is asked for, and one that is
        to end by itself; and one that must be acknowledged or that reads a register, for only an answer says so.
        """
        policy, now, claim = self._policy, self._core.front.now(), attempt.claim
        if claim.replicas or claim.register is not None:
            return None
        plain = policy.direct and claim.tokens == 1 and not attempt.unresolved and attempt.owner == claim.owner
        if plain and self._core.direct is not None and (self._core.shares_directly or not policy.at_engine):
            grant: Grant = DirectGrant(policy, handed.sent, handed.token, None, attempt)
        else:
            grant = Grant(attempt, policy, handed.sent, handed.token)
        if handed.lease < claim.ttl:
            grant.handed_over(handed.sent, handed.lease, now)
            if not policy.renew or policy.max_hold is not None or not self._core.watchdog.started:
                return None  # (to start a thread may take a while, on a machine that is busy)
        return grant if lease_time.is_long_enough(handed.lease, grant.deadline, now) else None

    def _ask(self, attempt: Attempt, timeout: float) -> Coroutine[Any, Any, Granted | Busy]:
        """One request for the lock."""
        return self._core.session.acquire(attempt, timeout)

    async def _wait(self, attempt: Attempt, sent: float) -> Handed | None:
        if self._contender is None:
            self._report_waiting()
            with self._core.lock:
                self._core.watchdog.resume()
            self._contender = self._core.session.contender(attempt, self._policy.request_timeout)
        now = self._core.front.now()
        until = acquire_time.next_look(now + _LONGEST_WAIT, self._timeout, self._deadline, sent)
        self._contender.timeout = self._request_timeout(now)
        try:
            return await self._contender.wait(until)
        except RequestFailed as failure:
            self.unanswered_since = sent
            await self._back_off(failure, attempt, sent)
            return None

    def _stayed_busy(self, sent: float) -> bool:
        """Whether the time is over, and the request of ``sent``, which was answered, was the last look."""
        is_over = self._deadline is not None and self._core.front.now() >= self._deadline
        return is_over and self.unanswered_since is None and acquire_time.is_last(self._timeout, self._deadline, sent)

    def _request_timeout(self, now: float) -> float:
        return acquire_time.request_timeout(self._policy.request_timeout, self._timeout, self._deadline, now)

    async def _back_off(self, failure: RequestFailed, attempt: Attempt, since: float) -> None:
        """Pause before the next try, or give up. The error says unreachable, never busy."""
        front, options = self._core.front, self._core.options
        limit = since + options.unavailable_after
        if self._deadline is not None:
            # "One try" still means one answer: a reply that was lost is asked for again.
            limit = min(limit, self._deadline if self._timeout else since + 2 * self._policy.request_timeout)
        self._failures += 1
        if not await retry.back_off(front, self._failures, limit, random.random):
            raise errors.unavailable(
                self._core.engine, self._policy, attempt, self.operation, front.now() - since, failure
            ) from failure

    # -- giving up -------------------------------------------------------------------------------------------------

    async def _clean_up(self) -> None:
        """A definite end: nothing is held, unless an attempt is still under way somewhere."""
        attempt, contender = self._attempt, self._contender
        if attempt is None and self._asked is not None:
            attempt = self._known_attempt()
        if attempt is not None and (attempt.unresolved or self.unanswered_since is not None):
            self._core.withdraw(attempt)
        elif attempt is not None and (contender is not None or attempt.queued):
            # Not waited for beyond the caller's own time: the watchdog removes a place that could not be left by then.
            if contender is None:
                self._contender = contender = self._core.session.contender(attempt, self._policy.request_timeout)
            most, now = self._policy.request_timeout, self._core.front.now()
            contender.timeout = acquire_time.time_to_leave(most, self._timeout, self._deadline, now)
            if not await contender.leave():
                self._core.withdraw(attempt)
        self._drop_contender()

    def _undo(self, *, drop: bool = True) -> None:
        """Cancelled or interrupted, no matter where: the attempt may hold the lock, now or later. ``drop``: also what
        belongs to the callers' side."""
        if drop:
            self._drop_contender()
        with self._core.lock:
            if self._waiter is not None:
                self._core.queue.leave(self._policy.key, self._waiter)
            self._give_up_grant()
        self._core.give_up_slot(self._policy, self, 0.0)

    def _give_up_grant(self) -> None:
        hold = None if self._grant is None else self._grant.hold
        if hold is None:
            self.give_up_claim()
        else:
            self._core.give_up_hold(hold, self._key)

    def give_up_claim(self) -> None:
        """Pass on the grant that it inherited, and withdraw the attempt that it made. The caller holds the lock."""
        if self.inherited is not None:
            self._core.pass_on(self.inherited, self)
        grant = self._grant
        if grant is None or not grant.handed_on_from(self._waiter):
            self.withdraw()

    def withdraw(self) -> None:
        """Have the watchdog make sure that this attempt holds nothing, now or later."""
        if self._attempt is not None or self._asked is not None:
            attempt = self._known_attempt()
            attempt.unresolved = True
            self._core.withdraw(attempt)

    def _unreachable_for(self, error: LockError) -> float:
        """For how long the engine could not be reached, as far as this caller knows."""
        if self.unanswered_since is None or not isinstance(error, EngineUnavailable):
            return 0.0
        return self._core.front.now() - self.unanswered_since

    def _drop_contender(self) -> None:
        if self._contender is not None:
            self._contender.abandon()
            self._contender = None  # not before: an interrupted clean-up does it again
        if self._attempt is not None:
            self._attempt.abandon()
