"""The watchdog: renews what is held, notices what is lost, withdraws what was given up. One per client, off the event
loop.

It runs on a session of its own, on a thread of its own for sync and async clients alike, so a blocked event loop does
not lose locks and a cancelled acquire is withdrawn whatever becomes of the loop. It never re-creates a lock; a failure
of one batch never touches another; whatever goes wrong in a round, the next round comes.

Renewals come first. Withdrawals go in batches, and between two batches whatever has become due is renewed.
"""

from __future__ import annotations

import logging
import operator
import random
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from holdfast._core import lease_time, releasing, renewing, repairs, retention, states
from holdfast._core.early_looks import EARLY, EarlyLooks
from holdfast._core.grant import Grant
from holdfast._core.hold import HandleRef
from holdfast._core.logs import log_later
from holdfast._core.operations import Running
from holdfast._core.withdrawals import Withdrawal, Withdrawals
from holdfast._runtime.base import Runtime
from holdfast.engines.base import ALL_NAMES, Attempt, Found, Keeper, RequestFailed, Suspects, WatchingKeeper, Withdrawn
from holdfast.errors import EngineError

if TYPE_CHECKING:
    from holdfast._core.core import Core

_log: Final = logging.getLogger("holdfast.watchdog")

#: Sleep no longer than this while anything is held: a suspend is not noticed by the sleep itself.
_LONGEST_SLEEP: Final = 1.0
_IDLE: Final = 3600.0
#: A grant is renewed up to this part of its ttl before it is due.
_AHEAD: Final = 30
_ONLY_ASK: Final = 0.001
#: So many answers are taken note of at once: callers wait for the core's lock meanwhile.
_PART: Final = 200
#: Withdrawals that are sent together: few enough to be done before the next renewals are due.
_BATCH: Final = 500
#: Of the time that a request may take, what a batch of withdrawals gets at least.
_LEAST_PART: Final = 0.25
#: While local callers wait, their slots are checked this often: a signal may have ended a caller before it woke them.
_CHECK_SLOTS: Final = 0.25
#: How often calls that were interrupted in their clean-up are looked for where the watchdog was not told of any.
_CHECK_INTERRUPTED: Final = 1.0
#: For how long after the client was closed withdrawals go on if a server is silent: what other servers have is to be
#: released. Then it ends: the thread must not stay for one time-out after the other.
_LAST_WITHDRAWALS: Final = 3.0
_AFTER_A_BUG: Final = 0.05
_NO_HANDLE: Final = -1
_NOW: Final = float("-inf")
_NEVER: Final = float("inf")
_ttl_of: Final = operator.attrgetter("ttl")


class Watchdog:
    """Call its methods with the core's lock held, except ``abandoned``, ``call_interrupted`` and ``run``."""

    def __init__(self, core: Core, runtime: Runtime, keeper: Keeper[Any]) -> None:
        self._core = core
        self._runtime = runtime
        self._keeper = keeper
        self._wakeup = runtime.wakeup()
        self._withdrawals = Withdrawals()
        #: Handles that became garbage unreleased, see ``Hold.add``.
        self.dropped: deque[HandleRef] = deque()
        self._retentions = retention.Retentions()
        self._suspects: set[str] = set()
        self._look_for_interrupted = False  # a call may have ended in the middle of its clean-up
        self._interrupted_checked = _NOW
        self._slots_in_use = False
        self._slots_checked = _NOW
        self._earliest = _NEVER  # no lease is to be looked at before
        self._known_ttl = _NEVER  # the shortest of the leases that were live when it planned its sleep, or before
        self._new_ttl = _NEVER  # the shortest of those that came since
        #: It need not be notified of leases that were requested after this, for at least this ttl: it looks in time.
        #: Never, from the same step on as the one that moves its next look to a later time.
        self.covered_from = self.covered_ttl = _NEVER
        self._early = core.engine.early_watch
        self._early_looks = EarlyLooks()
        self._wakes_at = _NOW  # when it will look by itself
        self._withdraw_until = _NOW
        self.started = False
        self._never = False  # it was stopped before it was started: it never runs
        self._running = False
        self.stopping = False
        self.stopped = core.front.event()

    # -- called by the core ----------------------------------------------------------------------------------------

    def watch(self, grant: Grant, confirmed: float) -> None:
        """Look after a grant that was confirmed by a request sent at ``confirmed``."""
        grant.due = renewing.not_after_its_end(grant, lease_time.renew_at(confirmed, grant.ttl, grant.slack))
        self.look_after(grant)

    def look_after(self, grant: Grant) -> None:
        """Look at a grant when it is due."""
        self.look_at(grant.due, grant.ttl, _NEVER if grant.early else grant.since)

    def look_at(self, due: float, ttl: float, since: float) -> None:
        """Look at what is held when it is ``due``; and, where that is of use, a little after ``since``, its beginning
        (never, if it was looked at)."""
        if due < self._earliest:
            self._earliest = due
        if self._early:
            looks = self._early_looks
            if since < looks.oldest:
                looks.oldest = since
            if since + EARLY < due:
                due = since + EARLY
        if ttl < self._new_ttl:
            self._new_ttl = ttl
        if due < self._wakes_at or not self.started:
            self._look_by(due)

    def cover(self, sent: float, due: float, ttl: float, since: float) -> None:
        """As ``look_at``, for one of many: those that are requested later, for no shorter a ttl, are due no sooner, and
        need not call it, as long as ``covered_from`` stays."""
        self.look_at(due, ttl, since)
        self.covered_from, self.covered_ttl = sent, ttl

    def withdraw(self, attempt: Attempt, until: float) -> None:
        """Make sure in the background that ``attempt`` holds nothing, now or later."""
        if self._never:
            return  # the client is closed, perhaps garbage: a finaliser must not start a thread on what is left of it
        self._withdrawals.add(attempt, until)
        self._look_by(_NOW)

    def abandoned(self, handle: HandleRef) -> None:
        """A handle became garbage unreleased. Called from ``__del__``: no lock, no I/O."""
        self.dropped.append(handle)
        self.wake()

    def call_interrupted(self, _: Running) -> None:
        """A call was interrupted in its clean-up: a callback of what it is known by, which is garbage. No lock, no I/O.

        Python ignores what a callback raises. If a signal interrupts this too, the call is found by a later round, and
        what it left at the engine is not renewed.
        """
        if not self._core.disowned:
            self._look_for_interrupted = True
            self._start_or_wake()

    def retain(self, held: retention.Retention) -> None:
        """Give back ``held`` when its time is over."""
        self._retentions.add(held)
        self._look_by(held.until)

    def suspect(self, name: str) -> None:
        """Have it verified that what is held under ``name`` is still ours."""
        self._suspects.add(name)
        if self.started:
            self._look_by(_NOW)

    def resume(self) -> None:
        """Start it if it could not be started when it was needed: no thread, or no descriptor, was left."""
        if self._withdrawals and not self.started:
            self._look_by(_NOW)

    def check_slots(self) -> None:
        """A caller waits in the local queue: look after its slot from now on."""
        self._slots_in_use = True
        self._look_by(self._runtime.now() + _CHECK_SLOTS)

    def wake(self) -> None:
        """Start a round now. Takes no lock."""
        self._wakeup.set()

    def stop(self) -> None:
        """Try each withdrawal once more, then end. Repeated, in case a signal came before it was woken."""
        if not self.stopping:
            self._withdraw_until = self._runtime.now() + _LAST_WITHDRAWALS
            self.stopping = True
        if self.started:
            self._look_by(_NOW)
        else:
            self._never = True
            self._wakeup.close()  # no thread will ever sleep on it
            self._end_reports()

    def _end_reports(self) -> None:
        """Nothing worth reporting comes after it: the observer gets what is queued, and no more."""
        if self._core.reports is not None:
            self._core.reports.delivery.shut()

    def _look_by(self, due: float) -> None:
        if not self.started or due < self._wakes_at:
            self._start_or_wake()
            self._wakes_at = due  # not before: if a signal comes in between, the next call wakes it

    def _start_or_wake(self) -> None:
        """Start a round now, for whatever was noted before. Takes no lock."""
        if self._never:
            return
        if self.started:
            self.wake()
            return
        if self._wakeup.closed:
            # The client is garbage, and so was the wake-up. A finaliser has found something to withdraw.
            self._wakeup = self._runtime.wakeup()
        self._runtime.spawn(self.run, "holdfast-watchdog")
        self.started = True  # not before: if a signal comes in between, the next call tries again

    # -- its own thread --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        with self._core.lock:
            if self._running or self._never:
                return  # the start of the first thread was interrupted before it was noted
            self._running = self.started = True
        try:
            while not self._may_end():
                try:
                    suspects = await self._keeper.wait_for_hints(self._plan_sleep(), self._wakeup)
                    self._wakeup.clear()
                    await self._round(suspects)
                except Exception:
                    # A watchdog that dies in silence loses every lock of the process.
                    with suppress(Exception):  # of a log handler
                        _log.exception("the watchdog met a bug in holdfast; it goes on")
                    await self._runtime.sleep_until(self._runtime.now() + _AFTER_A_BUG)
        finally:
            await self._keeper.close()
            if self._core.orphaned:  # no client object is left to close the callers' side
                self._core.front.spawn(self._core.session.close, "holdfast-close")
            self._end_reports()
            self._wakeup.close()
            self.stopped.set()

    def _plan_sleep(self) -> float:
        now = self._runtime.now()
        with self._core.lock:
            self.covered_from = _NEVER
            if not self._core.live and not self._core.young:
                self._earliest = self._known_ttl = _NEVER
            wake = min(
                self._earliest, self._withdrawals.next_due(), self._early_looks.due(), self._retentions.next_due()
            )
            unneeded = self._core.orphaned and wake == _NEVER and not self._core.releasing
            if self.stopping or self.dropped or self._suspects or self._look_for_interrupted or unneeded:
                wake = now
            else:
                wake = min(wake, now + self._longest_sleep(wake))
            self._wakes_at = wake
        return wake

    def _longest_sleep(self, wake: float) -> float:
        longest = _LONGEST_SLEEP if wake < _NEVER else _IDLE
        if self._slots_in_use:
            longest = _CHECK_SLOTS
        # Where locks come and go, the next acquire must not have to wake a thread, which costs more than a lock: so
        # look again, once, by when that acquire would be due.
        if self._new_ttl < _NEVER:
            longest = min(longest, self._new_ttl / lease_time.RENEWALS_PER_TTL)
            if self._core.engine.early_watch:
                longest = min(longest, EARLY)
            self._known_ttl, self._new_ttl = self._shortest_ttl(), _NEVER
        return longest

    def _may_end(self) -> bool:
        with self._core.lock:
            if self._withdrawals or self.dropped or self._look_for_interrupted:
                return False  # also when stopping: each is tried once more
            # A release may be under way by a caller to whom the client is garbage already: it needs the session that
            # ends with this thread.
            busy = self.dropped or self._core.live or self._core.young or self._core.releasing
            return self.stopping or (self._core.orphaned and not busy)

    async def _round(self, suspects: Suspects) -> None:
        with self._core.lock:
            self._retentions.drop_due(self._runtime.now())
        while self.dropped:
            handle = self.dropped.popleft()
            hold = handle.hold
            was_lost = hold.reason is not None and not hasattr(handle, "forgotten")
            # A retention whose time is over, or an acquire that was interrupted: no lease was forgotten.
            had_none = handle.key in hold.retentions or hold.state is states.REQUESTED
            if releasing.drop_handle(self._core, hold, handle.key) and not (was_lost or had_none):
                handle.log_forgotten()
        now = self._runtime.now()
        if self._look_for_interrupted or now >= self._interrupted_checked + _CHECK_INTERRUPTED:
            self._look_for_interrupted, self._interrupted_checked = False, now
            repairs.finish_interrupted(self._core)
        if self._slots_in_use and now >= self._slots_checked + _CHECK_SLOTS / 2:
            self._slots_in_use, self._slots_checked = self._core.repair_slots(), now
        await self._look_after_leases(suspects, now)
        with self._core.lock:
            if now >= self._early_looks.due():
                self.covered_from = _NEVER
                self._core.make_grants()
            early = self._early_looks.take(self._core.live, now)
        await self._watch_early(self._still_valid(early))
        await self._withdraw()

    async def _look_after_leases(self, suspects: Suspects, now: float) -> None:
        """Renew what is due. First: withdrawals may meet a black hole, and must not cost a lease."""
        if now < self._earliest and not suspects and not self._suspects:
            return
        due, suspected = list[Grant](), list[Grant]()
        try:
            with self._core.lock:
                due = self._take_due(now) if now >= self._earliest else due
                suspected = self._take_suspected(suspects, due) if suspects or self._suspects else suspected
            await self._renew([grant for grant in self._still_valid(due) if self._to_be_renewed(grant)])
            await self._verify(self._still_valid(suspected))
        finally:  # whatever went wrong, none of them is forgotten
            with self._core.lock:
                again = [grant.due for grant in (*due, *suspected) if grant in self._core.live]
                self._earliest = min([self._earliest, *again])

    def _take_due(self, now: float) -> list[Grant]:
        """What is due. What is due soon is taken along: ten thousand leases are renewed in a few batches.

        Not so what was handed over just now: most of it is over before it is to be confirmed.
        """
        self.covered_from = _NEVER
        live, taken, earliest = self._core.grants(), list[Grant](), _NEVER
        for grant in live:
            due = grant.due
            if due <= now + grant.ttl / _AHEAD and (due <= now or not grant.unconfirmed):
                taken.append(grant)
            elif due < earliest:
                earliest = due
        self._known_ttl = min(map(_ttl_of, live), default=_NEVER)
        self._earliest = earliest  # of the others; what was taken is included again once it was looked at
        return taken

    def _take_suspected(self, hinted: Suspects, due: list[Grant]) -> list[Grant]:
        """What may be lost, by a hint of the engine or a caller's. What is ``due`` is asked about in any case."""
        live, taken = self._core.grants(), set(due)
        if hinted != ALL_NAMES:
            names = {*hinted, *self._suspects}
            live = [grant for grant in live if grant.name in names]
        suspected = [grant for grant in live if grant not in taken and self._is_suspect(grant, hinted)]
        self._suspects.clear()
        return suspected

    def _is_suspect(self, grant: Grant, hinted: Suspects) -> bool:
        """A hint at a name does not count if the engine does not report this grant's loss yet: then it reported the end
        of an earlier hold of that name."""
        name = grant.name
        if hinted == ALL_NAMES or name in self._suspects:
            return True
        return name in hinted and (grant.watched or not self._core.engine.early_watch)

    def _still_valid(self, grants: Iterable[Grant]) -> list[Grant]:
        """Report the loss of those whose deadline has passed; return the rest."""
        renewable, now = [], self._runtime.now()
        for grant in grants:
            hold = grant.hold
            if now < grant.deadline and (hold is None or hold.ends is None or now < hold.ends):
                renewable.append(grant)
            elif hold is not None:
                self._core.expire(hold, now)
            else:
                self._core.lose_grant(grant, grant.why_expired())
        return renewable

    def _to_be_renewed(self, grant: Grant) -> bool:
        """False if no handle is left to release it, or if it is to end by itself: then look again when it does."""
        hold = grant.hold
        if hold is not None and not hold.handles:
            # Its release was interrupted, and so was what should finish it.
            releasing.drop_handle(self._core, hold, _NO_HANDLE)
            return False
        if grant.policy.renew:
            return True
        grant.due = grant.deadline if hold is None else hold.deadline
        return False

    async def _verify(self, grants: list[Grant]) -> None:
        """The engine hinted at a loss: ask. A renewal to almost nothing changes nothing, since it never shortens."""
        await self._renew([grant for grant in grants if grant.policy.renew])
        ending = [grant for grant in grants if not grant.policy.renew]
        if ending:
            await self._renew_batch(ending, _ONLY_ASK, min(grant.ttl for grant in ending))

    async def _watch_early(self, grants: list[Grant]) -> None:
        """Have the loss of ``grants`` reported from now on. Tried once: a renewal does the same, later."""
        if not grants:
            return
        timeout = lease_time.request_timeout(self._core.options.request_timeout, self._shortest_ttl())
        keeper = cast("WatchingKeeper[Attempt]", self._keeper)
        answers: Iterable[Found | Exception]
        try:
            answers = await keeper.watch([grant.attempt for grant in grants], timeout)
        except (RequestFailed, EngineError) as failure:
            answers = [failure] * len(grants)
        for grant, answer in zip(grants, answers, strict=True):
            if answer is Found.OURS:
                grant.watched = True
            elif isinstance(answer, Found):
                self._core.lose_grant(grant, grant.why_lost(answer, self._runtime.now()))

    async def _renew(self, grants: list[Grant]) -> None:
        if not grants:
            return
        batches: dict[float, list[Grant]] = {}
        for grant in grants:
            batches.setdefault(grant.ttl, []).append(grant)
        # Short leases first, and no request longer than the shortest lease allows, due now or not: one black hole (a
        # frozen shard, a dead replica) must not use up the time of the shortest leases.
        limit = self._shortest_ttl()
        for ttl in sorted(batches):
            await self._renew_batch(batches[ttl], ttl, limit)

    def _shortest_ttl(self) -> float:
        """No lease that is live has a shorter one."""
        return min(self._known_ttl, self._new_ttl)

    async def _renew_batch(self, grants: list[Grant], ttl: float, limit: float) -> None:
        sent = self._runtime.now()
        timeout = lease_time.request_timeout(self._core.options.request_timeout, limit)
        answers: Iterable[Found | Exception]
        try:
            answers = await self._keeper.renew([grant.attempt for grant in grants], ttl, timeout)
        except (RequestFailed, EngineError) as failure:
            answers = [failure] * len(grants)
        answers = list(answers)
        batch = renewing.RenewedBatch(grants, answers)
        batch.log_changes()
        if self._core.reports is not None and ttl > _ONLY_ASK:
            self._core.reports.batch(batch, sent, self._runtime.now())
        for start in range(0, len(grants), _PART):
            self._settle(grants[start : start + _PART], answers[start : start + _PART], sent, ttl)

    def _settle(self, grants: list[Grant], answers: list[Found | Exception], sent: float, ttl: float) -> None:
        with self._core.lock:
            now = self._runtime.now()
            # A renewal confirmed after the deadline must not revive the hold: its loss may have been seen.
            confirmed = [
                grant
                for grant, answer in zip(grants, answers, strict=True)
                if answer is Found.OURS and grant.lost is None and now < grant.deadline
            ]
            renewing.confirm(confirmed, self._core.live, sent, ttl)
        if len(confirmed) < len(grants):
            done = set(confirmed)
            for grant, answer in zip(grants, answers, strict=True):
                if grant not in done:
                    self._not_confirmed(grant, answer, ttl)

    def _not_confirmed(self, grant: Grant, answer: Found | Exception, ttl: float) -> None:
        now = self._runtime.now()
        if isinstance(answer, Exception):
            grant.failing = True
            end = grant.deadline if grant.hold is None else grant.hold.deadline
            grant.due = lease_time.retry_at(now, ttl, end)
            if now < end:
                return
        elif answer is not Found.OURS:
            self._core.lose_grant(grant, grant.why_lost(answer, now))
            return
        self._still_valid([grant])

    # -- withdrawals -----------------------------------------------------------------------------------------------

    async def _withdraw(self) -> None:
        """Withdraw what is due, batch after batch, until a renewal is."""
        while batch := self._next_batch():
            await self._withdraw_batch(batch)
            if self._earliest <= self._runtime.now():
                return

    def _next_batch(self) -> list[Withdrawal]:
        now = self._runtime.now()
        with self._core.lock:
            if self.stopping and now >= self._withdraw_until:
                self._withdrawals.clear()
            return self._withdrawals.due(_NEVER if self.stopping else now, _BATCH)

    async def _withdraw_batch(self, batch: list[Withdrawal]) -> None:
        answers: Sequence[Withdrawn]
        try:
            answers = await self._keeper.withdraw([each.attempt for each in batch], self._timeout_for(batch))
        except (RequestFailed, EngineError) as failure:
            answers = [failure] * len(batch)
        now = self._runtime.now()
        with self._core.lock:
            for withdrawal, answer in zip(batch, answers, strict=True):
                if isinstance(answer, RequestFailed) and not self.stopping:
                    self._withdrawals.failed(withdrawal, now, random.random)
                    continue
                self._withdrawals.done(withdrawal)
                if isinstance(answer, EngineError):
                    claim, text = withdrawal.attempt.claim, "could not withdraw from %s %r: %s"
                    log_later(_log, logging.WARNING, text, claim.mode.kind.value, claim.name, answer)

    def _timeout_for(self, batch: list[Withdrawal]) -> float:
        """No longer than until a lease is to be looked at, but long enough to be answered."""
        shortest = min(self._shortest_ttl(), *(withdrawal.attempt.claim.ttl for withdrawal in batch))
        timeout = lease_time.request_timeout(self._core.options.request_timeout, shortest)
        return min(timeout, max(self._earliest - self._runtime.now(), timeout * _LEAST_PART))
