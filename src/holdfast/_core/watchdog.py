"""The watchdog: renews what is held, notices what is lost, withdraws what was given up. One per client, off the event
loop.

It runs on a session of its own, on a thread of its own in both colours, so a blocked event loop does not lose locks and
a cancelled acquire is withdrawn whatever becomes of the loop. It never re-creates a lock; a failure of one batch or
errand never touches another; whatever goes wrong in a round, the next round comes.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast._core import backoff, lease_time
from holdfast._core.grant import Grant
from holdfast._core.hold import Hold
from holdfast._runtime.base import Runtime
from holdfast.engines.base import ALL_NAMES, Claim, Found, RequestFailed, Session, Suspects
from holdfast.errors import EngineError

if TYPE_CHECKING:
    from holdfast._core.core import Core

_log: Final = logging.getLogger("holdfast.watchdog")

#: Sleep no longer than this while anything is held: a suspend is not noticed by the sleep itself.
_LONGEST_SLEEP: Final = 1.0
_IDLE: Final = 3600.0
#: A grant is renewed up to this part of its ttl before it is due.
_AHEAD: Final = 30
#: A hold that no Lease has taken over after this part of its ttl never will be.
_TIME_TO_TAKE: Final = 4
#: A hold that has lived so long is worth a request that makes its loss known at once, before its first renewal.
_WORTH_WATCHING: Final = 0.1
_ONLY_ASK: Final = 0.001
#: A failure that took longer was a time-out.
_SLOW: Final = 0.03
#: For how long after the client was closed errands are tried also if one has met a silent server: what other servers
#: have shall be released. Not for ever: the thread would stay for one time-out after the other.
_LAST_ERRANDS: Final = 3.0
_AFTER_A_BUG: Final = 0.05
_NOW: Final = float("-inf")
_NEVER: Final = float("inf")


@dataclass(slots=True)
class Errand:
    """A claim to withdraw: tried until ``until``, when the engine has forgotten it by itself."""

    claim: Claim
    until: float
    due: float = 0.0
    failures: int = 0


class Watchdog:
    """Call its methods with the core's lock held, except ``abandoned`` and ``run``."""

    def __init__(self, core: Core, runtime: Runtime, session: Session) -> None:
        self._core = core
        self._runtime = runtime
        self._session = session
        self._bell = runtime.wakeup()
        self._errands: list[Errand] = []
        self._abandoned: deque[Hold] = deque()
        self._wakes_at = _NOW  # when it will look by itself
        self._last_ttl = 0.0
        self._watches_early = core.engine.early_watch
        self._patient_until = _NOW
        self.started = False
        self._running = False
        self.stopping = False
        self.stopped = core.front.event()

    # -- what the core tells it ------------------------------------------------------------------------------------

    def watch(self, grant: Grant, confirmed: float) -> None:
        """Look after a grant that was confirmed by a request sent at ``confirmed``."""
        due = lease_time.renew_at(confirmed, grant.ttl, grant.slack)
        hold = grant.hold
        if hold is not None and hold.ends is not None and hold.ends < due:
            due = hold.ends
        grant.due = due
        if self._watches_early and not grant.watched:
            grant.look = grant.since + _WORTH_WATCHING
            due = min(due, grant.look)
        self._last_ttl = grant.ttl
        if due < self._wakes_at or not self.started:
            self._look_by(due)

    def withdraw(self, claim: Claim, until: float) -> None:
        """Make sure in the background that ``claim`` holds nothing, now or later."""
        if self.stopping and not self.started:
            return  # the client is closed, perhaps garbage: a finaliser must not start a thread on what is left of it
        self._errands.append(Errand(claim, until))
        self._look_by(_NOW)

    def abandoned(self, hold: Hold) -> None:
        """A handle became garbage unreleased. Called from ``__del__``: no lock, no I/O."""
        self._abandoned.append(hold)
        self.ring()

    def ring(self) -> None:
        """Have it look around now. Takes no lock."""
        self._bell.set()

    def stop(self) -> None:
        """Run the errands once more, then end."""
        self._patient_until = self._runtime.now() + _LAST_ERRANDS
        self.stopping = True
        if self.started:
            self._look_by(_NOW)
        else:
            self._bell.close()  # nobody will ever sleep on it

    def _look_by(self, due: float) -> None:
        if not self.started:
            self._runtime.spawn(self.run, "holdfast-watchdog")
            self.started = True  # not before: if Ctrl-C strikes in between, the next call tries again
        elif due < self._wakes_at:
            self._bell.set()
            self._wakes_at = due  # not before: if Ctrl-C strikes in between, the next call rings

    # -- its own thread --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        with self._core.lock:
            if self._running:
                return  # Ctrl-C struck when the first thread had begun but nobody knew yet
            self._running = self.started = True
        try:
            while not self._may_end():
                try:
                    suspects = await self._session.doze(self._plan_sleep(), self._bell)
                    self._bell.clear()
                    await self._round(suspects)
                except Exception:
                    # A watchdog that dies in silence loses every lock of the process.
                    _log.exception("the watchdog met a bug in holdfast; it goes on")
                    await self._runtime.sleep_until(self._runtime.now() + _AFTER_A_BUG)
        finally:
            await self._session.close()
            if self._core.orphaned:  # nobody is left who could close the callers' side
                self._core.front.spawn(self._core.session.close, "holdfast-close")
            self._bell.close()
            self.stopped.set()

    def _plan_sleep(self) -> float:
        now = self._runtime.now()
        with self._core.lock:
            wake = min((min(grant.due, grant.look) for grant in list(self._core.live)), default=_NEVER)
            wake = min(wake, min((errand.due for errand in self._errands), default=_NEVER))
            core = self._core
            if self.stopping or self._abandoned or (core.orphaned and wake == _NEVER and not core.releasing):
                wake = now
            elif wake == _NEVER:
                # Nothing is held. Where locks come and go, the next acquire must not have to wake a thread, which costs
                # more than a lock: so look again by then, once.
                soon = _WORTH_WATCHING if self._watches_early else self._last_ttl / lease_time.RENEWALS_PER_TTL
                wake = now + (soon if self._last_ttl else _IDLE)
                self._last_ttl = 0.0
            else:
                wake = min(wake, now + _LONGEST_SLEEP)
            self._wakes_at = wake
        return wake

    def _may_end(self) -> bool:
        with self._core.lock:
            if self._errands:
                return False  # also when stopping: each is tried once more
            # A release may be under way by a caller to whom the client is garbage already: it needs the session that
            # ends with this thread.
            busy = self._abandoned or self._core.live or self._core.releasing
            return self.stopping or (self._core.orphaned and not busy)

    async def _round(self, suspects: Suspects) -> None:
        while self._abandoned:
            self._core.drop_handle(self._abandoned.popleft())
        now = self._runtime.now()
        with self._core.lock:
            # What is due soon is taken along: ten thousand leases are renewed in a few batches.
            live = list(self._core.live)
            due = {grant: None for grant in live if grant.due <= now + grant.ttl / _AHEAD}
            suspected = self._suspected(suspects, due.keys()) if suspects else []
            young = [grant for grant in live if grant.look <= now and grant not in due]
        # Renewals first: errands may meet a black hole, and must not cost those who hold.
        await self._renew([grant for grant in self._still_believed(due) if self._to_be_renewed(grant)])
        await self._verify(self._still_believed(suspected))
        await self._watch_early(self._still_believed(young))
        await self._run_errands()

    def _suspected(self, suspects: Suspects, due: Collection[Grant]) -> list[Grant]:
        return [
            grant
            for grant in list(self._core.live)
            if grant not in due and (suspects == ALL_NAMES or self._is_suspect(grant, suspects))
        ]

    def _is_suspect(self, grant: Grant, names: Collection[str]) -> bool:
        """Not if the engine does not report its loss yet: then the end of an earlier hold of that name was reported."""
        return grant.claim.name in names and (grant.watched or not self._watches_early)

    def _still_believed(self, grants: Iterable[Grant]) -> list[Grant]:
        """Tell the loss of those whose time is over; the rest is to be renewed."""
        renewable = []
        for grant in grants:
            now = self._runtime.now()
            hold = grant.hold
            if hold is not None and now >= hold.deadline:
                self._core.expire(hold, now)
            elif now >= grant.deadline:
                self._core.lose_grant(grant, grant.why_expired())
            else:
                renewable.append(grant)
        return renewable

    def _to_be_renewed(self, grant: Grant) -> bool:
        """Not if nobody can release it any more; nor if it is to end by itself: then look again when it does."""
        hold = grant.hold
        if hold is not None and not hold.in_use() and self._runtime.now() - hold.since >= grant.ttl / _TIME_TO_TAKE:
            # A loss, not a release: should its caller only have been frozen for very long, it is told.
            self._core.lose_grant(grant, "expired")
            self._core.withdraw_grant(grant)
            return False
        if grant.policy.renew:
            return True
        grant.due = grant.deadline if hold is None else hold.deadline
        return False

    async def _verify(self, grants: list[Grant]) -> None:
        """The engine hinted at a loss: ask. To renew to next to nothing changes nothing, for it never shortens."""
        await self._renew([grant for grant in grants if grant.policy.renew])
        ending = [grant for grant in grants if not grant.policy.renew]
        if ending:
            await self._renew_batch(ending, _ONLY_ASK, min(grant.ttl for grant in ending))

    async def _watch_early(self, grants: list[Grant]) -> None:
        """Have the loss of ``grants`` reported from now on. Tried once: a renewal does the same, later."""
        if not grants:
            return
        for grant in grants:
            grant.look = _NEVER
        timeout = lease_time.request_timeout(self._core.options.request_timeout, self._shortest_ttl())
        answers: Iterable[Found | Exception]
        try:
            answers = await self._session.watch([grant.claim for grant in grants], timeout)
        except (RequestFailed, EngineError) as failure:
            answers = [failure] * len(grants)
        for grant, answer in zip(grants, answers, strict=True):
            if answer is Found.OURS:
                grant.watched = True
            elif isinstance(answer, Found):
                self._core.lose_grant(grant, grant.why_lost(answer, self._runtime.now()))

    async def _renew(self, grants: list[Grant]) -> None:
        batches: dict[float, list[Grant]] = {}
        for grant in grants:
            batches.setdefault(grant.ttl, []).append(grant)
        # Short leases first, and no request longer than the shortest lease allows, due now or not: one black hole (a
        # frozen shard, a dead replica) must not eat up the time of those who have the least.
        limit = self._shortest_ttl()
        for ttl in sorted(batches):
            await self._renew_batch(batches[ttl], ttl, limit)

    def _shortest_ttl(self) -> float:
        with self._core.lock:
            return min((grant.ttl for grant in list(self._core.live)), default=_IDLE)

    async def _renew_batch(self, grants: list[Grant], ttl: float, limit: float) -> None:
        sent = self._runtime.now()
        timeout = lease_time.request_timeout(self._core.options.request_timeout, limit)
        answers: Iterable[Found | Exception]
        try:
            answers = await self._session.renew([grant.claim for grant in grants], ttl, timeout)
        except (RequestFailed, EngineError) as failure:
            answers = [failure] * len(grants)
        for grant, answer in zip(grants, answers, strict=True):
            self._settle(grant, answer, sent, ttl)

    def _settle(self, grant: Grant, answer: Found | Exception, sent: float, ttl: float) -> None:
        now = self._runtime.now()
        if answer is Found.OURS:
            with self._core.lock:
                # A renewal confirmed after belief had ended must not bring it back: somebody may have looked meanwhile.
                if grant.lost is None and now < grant.deadline:
                    grant.confirm(sent, ttl)
                    grant.watched, grant.look = True, _NEVER
                    if self._core.tracks(grant):
                        self.watch(grant, sent)
                    return
        elif isinstance(answer, Exception):
            if not grant.failing:
                _log.warning("lock %r could not be renewed yet: %s", grant.policy.name, answer)
            grant.failing = True
            end = grant.deadline if grant.hold is None else grant.hold.deadline
            grant.due = lease_time.retry_at(now, ttl, end)
            if now < end:
                return
        else:
            self._core.lose_grant(grant, grant.why_lost(answer, now))
            return
        self._still_believed([grant])

    async def _run_errands(self) -> None:
        with self._core.lock:
            errands, self._errands = self._errands, []
        later = []
        while errands:
            errand, now = errands.pop(0), self._runtime.now()
            if now < errand.due and not self.stopping:
                later.append(errand)
            elif not await self._try_errand(errand):
                failed = self._runtime.now()
                errand.failures += 1
                errand.due = failed + backoff.pause(errand.failures, random.random)
                later.append(errand)
                if failed - now > _SLOW and failed >= self._patient_until:
                    for other in errands:  # they too would only wait for their time-outs, one after the other
                        other.due = max(other.due, errand.due)
                    break
        now = self._runtime.now()
        with self._core.lock:
            # Those that failed go last: one that cannot be run (one server of five is dead) must not keep the others.
            self._errands += [errand for errand in errands + later if now < errand.until and not self.stopping]

    async def _try_errand(self, errand: Errand) -> bool:
        timeout = lease_time.request_timeout(self._core.options.request_timeout, errand.claim.ttl)
        try:
            (answer,) = await self._session.withdraw([errand.claim], timeout)
        except RequestFailed:
            return False
        if isinstance(answer, EngineError):
            _log.warning("could not withdraw from lock %r: %s", errand.claim.name, answer)
        return not isinstance(answer, RequestFailed)
