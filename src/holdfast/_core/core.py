"""The core: claim → grant → hold, written once for every engine and every runtime.

It decides when to ask the engine, which local waiter is next, and what an answer means. The facades (client.py, aio.py)
only translate. ``lock`` guards all bookkeeping of one client; it is never held across I/O or a user's code.
"""

from __future__ import annotations

import os
import random
import threading
import uuid
import weakref
from collections.abc import Callable, Coroutine, Hashable
from typing import TYPE_CHECKING, Any, Final, cast

from holdfast._config.options import ClientOptions
from holdfast._core import acquire_errors, repairs, states
from holdfast._core.acquisition import Acquisition
from holdfast._core.direct_hold import DirectHold
from holdfast._core.grant import Grant
from holdfast._core.hold import Handle, Hold
from holdfast._core.local_queue import MAX_HANDOVERS, LocalQueue, LocalWaiter
from holdfast._core.operations import Operations, Withdrawable
from holdfast._core.policy import Policy
from holdfast._core.shared_looks import SharedLooks
from holdfast._core.watchdog import Watchdog
from holdfast._runtime.base import Runtime
from holdfast._runtime.description import with_value
from holdfast.engines.base import EXCLUSIVE, READ, WRITE, Attempt, Claim, Engine, Session
from holdfast.engines.optional_sessions import SharedDirectSession, SharedSession
from holdfast.errors import LossReason, UsageError

if TYPE_CHECKING:
    from holdfast.observer.reports import Reports

CLOSE_WITHIN: Final = 1.0
#: Waiters queued for at least this part of an outage share its error.
_SHARES_OUTAGE: Final = 0.9


class Core:
    """One open client: its identity towards the engine, its sessions, its holds."""

    def __init__(self, engine: Engine, options: ClientOptions, front: Runtime, back: Runtime) -> None:
        self.engine = engine
        self.reports: Reports | None = None  #: to the observer, if there is one
        self.options = options
        self.front = front
        self.now: Final = front.now
        self._caller: Final = front.caller
        self.session = engine.session(front)
        # Re-entrant: an acquire that never came to its end (its event loop was closed) is undone as garbage, on
        # whatever thread the collector runs; perhaps on one that has just taken it. So code that iterates takes a copy.
        self.lock = threading.RLock()
        self.queue = LocalQueue(overtaking=front.switches_threads)
        self.looks = SharedLooks(front)  #: of the waiters of conditions
        self.closed = False
        self.disowned = False  #: it belongs to the parent process
        self.orphaned = False  #: the client object is garbage: end when nothing is held any more
        #: None: every request goes through an attempt, for an observer to see, or since the engine cannot do without.
        self.direct: SharedDirectSession[Any] | None = None if engine.strict_order else _direct(self.session)
        #: Whether it serves read-write locks and semaphores. Else it is a DirectSession.
        self.shares_directly: Final = hasattr(self.session, "acquire_shared_directly")
        self._identity = f"{uuid.uuid4()}:"
        self.describe: Final = front.describer(options.label)
        # Tells the claims of this client apart. Random: an attempt may go on under the next number, which must be free.
        self._number = random.Random(os.urandom(16)).getrandbits
        #: For re-entry, by place and caller: the holds that occupy no slot of the local queue.
        self.slotless: dict[tuple[Hashable, Hashable], Hold] = {}
        self.live: dict[Grant, None] = {}  #: what the watchdog renews; in the order in which they came
        self.young: dict[DirectHold, None] = {}  #: held, but not live yet: the watchdog has not looked at them
        self.sizes_compared: set[str] = set()  #: the semaphores whose size was not the expected one, which was logged
        self._given_up: list[Grant] = []  # held when the client was closed: to be withdrawn
        self._idle = front.event()
        self.watchdog = Watchdog(self, back, engine.keeper(back))
        self.on_dropped: Final = self.watchdog.dropped.append  #: of handles, see ``Hold.add``
        interrupted = self.watchdog.call_interrupted
        #: A client that closes waits for their end.
        self.acquiring: Operations[Acquisition | DirectHold] = Operations(interrupted)
        self.releasing: Operations[Hold] = Operations(interrupted)  #: by callers to whom the client may be garbage
        self.waiting: Operations[Hold] = Operations(interrupted)  #: for conditions
        self.detaching: Operations[Withdrawable] = Operations(interrupted)

    # -- acquiring -------------------------------------------------------------------------------------------------

    def new_owner(self) -> str:
        """The owner of a new claim."""
        return f"{self._identity}{self._number(63)}"

    def new_attempt(self, policy: Policy, *, non_barging: bool, under: Attempt | None = None) -> Attempt:
        """An attempt at a new claim; with local waiters behind it, it asks for enough tokens to be handed over.

        ``under``: the caller's own attempt that holds the name for writing, if the claim is to read.
        """
        reserve = self.queue.waiting(policy.key) and self.engine.reserves_tokens and not policy.at_engine
        claim = Claim(
            policy.key,
            self.new_owner(),
            policy.ttl,
            MAX_HANDOVERS + 1 if reserve else 1,
            policy.fair,
            non_barging,
            policy.replicas,
            self.describe() if policy.value is None else with_value(self.describe(), policy.value),
            policy.mode,
            False,
            policy.register,
        )
        if under is not None:
            return cast("SharedSession[Any]", self.session).nested(claim, under)  # type: ignore[no-any-return]
        attempt: Attempt = self.session.attempt(claim)
        return attempt

    def reenter(self, policy: Policy, handle: Handle) -> bool:
        """Make ``handle`` one more handle of the caller's own live hold on this name, if there is one. No I/O."""
        if not policy.reentrant:
            return False
        handle._caller = caller = self._caller()
        hold = self.queue.occupants.get(policy.key)
        if hold is None or hold.policy is not policy or hold.caller != caller:
            if not self.slotless and (hold is None or hold.policy is None or hold.caller != caller):
                return False  # nothing is held here, or by another caller
            hold = self._hold_to_join(policy, caller)
            if hold is None:
                return False
        with self.lock:
            grant = hold._grant
            until = hold._valid_until if grant is None else grant.deadline
            if (self.now() >= until or not hold.plain) and not hold.held:
                return False
            # Without a handle it is being given back: a release that was interrupted is finished by the watchdog. With
            # none but retentions the caller has left: at_least makes it wait like any other.
            if hold.state is not states.HELD or not hold.handles:
                return False
            if hold.retentions and hold.handles.keys() <= hold.retentions:
                return False
            handle._hold = hold
            hold.add(handle)
        return True

    def _hold_to_join(self, policy: Policy, caller: Hashable) -> Hold | None:
        """The hold of ``caller`` that it re-enters; UsageError if it was acquired with other settings."""
        hold = self._hold_at(policy, caller)
        if hold is not None and hold.held and policy is not hold.policy and not policy.shares_hold_with(hold.policy):
            raise acquire_errors.other_settings(policy)
        return hold

    def _hold_at(self, policy: Policy, caller: Hashable) -> Hold | None:
        """The hold of ``caller`` that a re-entry under ``policy`` would join."""
        hold = self.queue.occupants.get(policy.key)
        if isinstance(hold, Hold) and hold.caller == caller and hold.policy.place == policy.place:
            return hold if hold.state is states.HELD and hold.policy.reentrant else None
        return self.slotless.get((policy.place, caller)) if self.slotless else None

    def hold_of_caller(self, policy: Policy) -> Hold | None:
        """The running caller's own hold on this name, perhaps one that is over."""
        return self._hold_at(policy, self.front.caller())

    def hold_of_block(self, policy: Policy) -> Hold | None:
        """The hold on this name of which the running caller has an open block, though another caller has acquired it:
        before Python 3.12, ``asyncio.wait_for(lock.acquire(), 1)`` acquires in a task of its own."""
        holds = (grant.hold for grant in self.grants_on(policy.key))
        for hold in holds:
            if hold is None or hold.policy.place != policy.place:
                continue
            if any(scope.is_of_caller() for scope in hold.scopes):
                return hold
        return None

    def held_by(self, place: Hashable, caller: Hashable) -> bool:
        """Whether ``caller`` holds what ``place`` names (``Policy.place_of``)."""
        hold = self.slotless.get((place, caller))
        return hold is not None and hold.held

    def held_for_writing(self, policy: Policy, caller: Hashable) -> Hold | None:
        """The hold by which the caller has the read-write lock of ``policy``, which is to read it, for writing."""
        hold = self.slotless.get((policy.place_of(WRITE), caller))
        if hold is None or not hold.held:
            return None
        if hold.policy.ttl != policy.ttl:
            raise acquire_errors.other_ttl(policy)
        return hold

    def refuse_upgrade(self, policy: Policy, caller: Hashable) -> None:
        """A caller that reads cannot write before all readers have left: it would wait for itself."""
        hold = self.slotless.get((policy.place_of(READ), caller))
        if hold is not None and hold.held:
            raise acquire_errors.no_upgrade(policy)

    def nesting(self, policy: Policy, caller: Hashable) -> Attempt | None:
        """What the caller itself holds of a read-write lock: a write allows its read; a read refuses its write."""
        if policy.mode is READ:
            hold = self.held_for_writing(policy, caller)
            return None if hold is None else hold.grant.attempt
        if policy.mode is WRITE:
            self.refuse_upgrade(policy, caller)
        return None

    def begin(self, acquisition: Acquisition, handle: Handle, answer: Any = None) -> Coroutine[Any, Any, None]:
        """Run it, as one of those that are under way: a new hold, with ``handle`` as its first one. ``answer``: to its
        direct request, if there was one (direct_acquire.py).

        Cancelled or interrupted, nothing stays behind: either it is undone there, or ``handle`` has the hold, and is
        garbage.
        """
        coroutine, acquiring = acquisition.run(handle, answer), self.acquiring
        acquiring.running[acquisition] = weakref.ref(coroutine, acquiring.on_garbage)
        return coroutine

    def acquisition_left(self, acquisition: Acquisition | DirectHold) -> None:
        """It is not under way any more."""
        self.acquiring.end(acquisition)
        if self.closed:
            self._check_idle()

    def _check_idle(self) -> None:
        """A client that is closing waits for the last acquisition."""
        with self.lock:
            if not self.acquiring:
                self._idle.set()

    # -- giving up -------------------------------------------------------------------------------------------------

    def pass_on(self, grant: Grant, seeker: Acquisition) -> None:
        """A local waiter was given this grant but has gone: give it to the next, or to the engine. No I/O."""
        with self.lock:
            self.queue.keep(grant.name, seeker.waiter)
            if self.queue.occupant(grant.name) is not seeker:
                # It was passed on already, and may be held by now; or its hold was ended, and then a signal came.
                if not grant.handed_on_from(seeker.waiter):
                    self.live.pop(grant, None)
                    self.withdraw_grant(grant)
                return
            following = self.queue.hand_over(grant, seeker, self.front.now())
            if following is None:
                self.live.pop(grant, None)
                if grant.lost is None:
                    self.withdraw_grant(grant)
                following = self.queue.vacate(grant.name, seeker)
        if following is not None:
            following.event.set()

    def give_up_slot(self, policy: Policy, seeker: Acquisition, unreachable_for: float) -> None:
        """The acquisition has failed: the next local waiter's turn.

        If the engine could not be reached for long enough, waiters that were queued behind this caller all the time
        get the same error now, not each after its own time-out.
        """
        with self.lock:
            waiters: list[LocalWaiter] = []
            if unreachable_for >= self.options.unavailable_after:
                waiters = self.queue.turn_away(policy.key, self.front.now() - _SHARES_OUTAGE * unreachable_for)
            following = self.queue.vacate(policy.key, seeker)
            if following is not None:
                waiters.append(following)
        for waiter in waiters:
            waiter.event.set()

    def give_up_hold(self, hold: Hold, key: int) -> None:
        """Its caller, with the handle ``key``, was interrupted when the hold was there, but not returned. Left there,
        the same caller would re-enter it: a lock that the engine is asked to give to others.

        Call it with the lock held. The handle stays: if this is interrupted too, the watchdog finds it as garbage.
        """
        if hold.handles.keys() <= {key}:
            hold.report_end("unknown")
            self.lose_grant(hold.grant, "expired")
            hold.grant.attempt.unresolved = True
            self.withdraw_grant(hold.grant)
        else:  # a signal handler of this caller has re-entered it, and keeps it; or it was passed on
            hold.handles.pop(key, None)

    def let_go(self, grant: Grant) -> None:
        """An inherited grant that is of no use any more. Its slot stays with the caller."""
        with self.lock:
            self.live.pop(grant, None)
            if grant.lost is None:
                self.withdraw_grant(grant)

    def withdraw(self, attempt: Attempt) -> None:
        """Have the watchdog make sure that ``attempt`` holds nothing, now or later."""
        with self.lock:
            self.watchdog.withdraw(attempt, self.front.now() + attempt.withdrawn_for)

    def withdraw_grant(self, grant: Grant) -> None:
        """The same for one that was granted: it may have been renewed to more than was asked for."""
        with self.lock:
            self.watchdog.withdraw(grant.attempt, self.front.now() + grant.longest_ttl)

    def forget_caller(self, hold: Hold) -> None:
        if not self.slotless:
            return
        place, holds = (hold.policy.place, hold.caller), self.slotless
        # No call from here on: a signal handler of this caller may read the same lock, by another hold.
        if place in holds and holds[place] is hold:
            del holds[place]

    def renewed(self, grant: Grant, sent: float, ttl: float) -> None:
        """The user renewed by hand: ``ttl`` is what the watchdog renews to from now on, unless a session decides."""
        if grant.by_session:
            ttl = grant.ttl
        with self.lock:
            grant.confirm(sent, ttl)
            grant.ttl = ttl
            if self.tracks(grant):
                self.watchdog.watch(grant, sent)

    # -- loss ------------------------------------------------------------------------------------------------------

    def tracks(self, grant: Grant) -> bool:
        """Whether the watchdog should go on with it. The caller holds the lock."""
        return grant in self.live and grant.lost is None

    def grants(self) -> list[Grant]:
        """Those that are live, with those of young holds, which are made now. The caller holds the lock."""
        self.make_grants()
        return list(self.live)

    def make_grants(self) -> None:
        """From now on, what is held is live. The caller holds the lock."""
        for hold in list(self.young):
            _ = hold.grant

    def expire(self, hold: Hold, now: float) -> None:
        """The deadline has passed: the first caller that looks ends the hold."""
        self._lose(hold, hold.why_over(now))

    def lose_grant(self, grant: Grant, reason: LossReason) -> None:
        """The engine's answer, or the clock, has ended this grant."""
        with self.lock:
            if grant.lost is None:
                grant.lost = reason
            self.live.pop(grant, None)
            hold = grant.hold
        if hold is not None:
            self._lose(hold, reason)

    def _lose(self, hold: Hold, reason: LossReason) -> None:
        with self.lock:
            grant = hold.grant
            if hold.state is states.HELD:
                hold.report_end(reason)
                hold.advance(states.LOSE)
                hold.reason = reason
            elif hold.state is not states.LOST or grant.hold is not hold or self.disowned:
                return
            # Interrupted from here on, it is all done again, by the watchdog: the grant is live, and has its hold.
            self.forget_caller(hold)
            if (grant.by_session or hold.policy.mode is not EXCLUSIVE) and not self.closed:
                # Its session lives on, or the other holders keep the object: no other client would get the lock.
                self.withdraw_grant(grant)
            waiter = self.queue.vacate(hold.policy.key, hold)
            grant.hold = None
            self.live.pop(grant, None)
        self._tell(hold, waiter)

    def lose_parked(self, hold: Hold, reason: LossReason) -> None:
        """A parked hold will not be resumed: it was lost before the engine released it, or the client is closed."""
        with self.lock:
            if hold.state is not states.PARKED:
                return
            hold.report_end(reason)
            self.withdraw_unreleased(hold)
            hold.advance(states.LOSE)
            hold.reason = reason
            waiter = self.queue.vacate(hold.policy.key, hold)
        self._tell(hold, waiter)

    def withdraw_unreleased(self, hold: Hold) -> None:
        """Of a parked hold, what the engine may still have. The caller holds the lock."""
        grant = hold.unreleased
        if grant is not None:
            # Interrupted while it was parked, it may still be counted as live: it would be renewed for ever.
            self.forget_caller(hold)
            self.live.pop(grant, None)
            grant.hold = None
            grant.attempt.unresolved = True
            self.withdraw_grant(grant)
            hold.unreleased = None  # not before: interrupted, it is withdrawn once more

    def _tell(self, hold: Hold, waiter: LocalWaiter | None) -> None:
        """The hold is lost: tell its listeners and its innermost block, and the next local waiter."""
        with self.lock:
            listeners = hold.take_listeners()
            scope = hold.scopes[-1] if hold.scopes else None
        if waiter is not None:
            waiter.event.set()
        self.dispatch(listeners)
        hold.notify()
        if scope is not None:
            scope.on_loss()

    def dispatch(self, listeners: list[Callable[[], Any]]) -> None:
        for listener in listeners:
            self.front.dispatch(listener)

    def leave_to_expire(self, hold: Hold) -> None:
        """Neither renew nor release it: it is held until its ttl has passed, also if this process ends before."""
        self.lose_grant(hold.grant, "closed")
        with self.lock:
            hold.handles.clear()  # one that becomes garbage while the client is open would have it withdrawn

    def grants_on(self, key: str) -> list[Grant]:
        """What this client holds, or is handing over, under this name."""
        with self.lock:
            return [grant for grant in self.grants() if grant.name == key]

    # -- interrupted callers ---------------------------------------------------------------------------------------

    def repair_slot(self, key: str) -> None:
        """Give a name's local slot to the next waiter if its occupant is gone. No I/O."""
        repairs.repair_slot(self, key)

    def repair_slots(self) -> bool:
        """The same for every name that local callers wait for. Whether there are any."""
        return repairs.repair_slots(self)

    # -- opening and closing ---------------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self.closed:
            raise UsageError("this client is closed; connect() again")

    async def close(self) -> None:
        """Release everything (the watchdog does it, so that it works without an event loop), within a second."""
        until = self.front.now() + CLOSE_WITHIN
        self._shut()
        try:
            self._check_idle()  # perhaps none is under way
            # They see that it is closed and withdraw their attempts: before the watchdog ends, which has to do it.
            await self._idle.wait(until)
            self._stop_watchdog()
            if self.watchdog.started:
                await self.watchdog.stopped.wait(until)
        finally:  # also if it is cancelled or interrupted: nothing else closes the rest
            self._stop_watchdog()
            await self.session.close()
        if self.reports is not None:
            await self.reports.flush()

    def begin_close(self) -> None:
        """End all holds, turn all waiters away, and have the watchdog release what was held. No I/O."""
        self._shut()
        with self.lock:
            acquiring = self.acquiring.all()
        for acquisition in acquiring:  # their threads or their loop may not run again
            acquisition.withdraw()
        self._stop_watchdog()

    def _stop_watchdog(self) -> None:
        with self.lock:
            self.watchdog.stop()

    def _shut(self) -> None:
        """Every step may be interrupted, and is done again by the next call."""
        with self.lock:
            self.closed = True
            self._given_up += self.grants()
            self.queue.close()
            acquiring, leaving = self.acquiring.all(), self.releasing.all()
        for hold in leaving:  # those that are parked: their callers find out
            self.lose_parked(hold, "closed")
        while self._given_up:
            grant = self._given_up[-1]
            self.lose_grant(grant, "closed")
            self.withdraw_grant(grant)
            self._given_up.pop()
        for acquisition in acquiring:
            acquisition.notify_again()

    def orphan(self) -> None:
        """The client object is garbage: let the watchdog end once nothing is held. Called from ``__del__``: no lock."""
        self.orphaned = True
        self.watchdog.wake()

    def disown_in_child(self) -> None:
        """After a fork, in the child: nothing here is ours. The lock may be held by a thread that was not copied."""
        self.lock = threading.RLock()
        self.reports = None  # the parent delivers what is queued
        self.closed = self.disowned = True
        for grant in self.grants():
            grant.lost = grant.lost or "forked"
            hold = grant.hold
            if hold is not None and hold.state is states.HELD:
                hold.advance(states.LOSE)
                hold.reason = "forked"
        for hold in self.releasing.all():
            if hold.state is states.PARKED:
                hold.advance(states.LOSE)
                hold.reason = "forked"
        self.live = {}


def _direct(session: Session[Any]) -> SharedDirectSession[Any] | None:
    return cast("SharedDirectSession[Any]", session) if hasattr(session, "acquire_directly") else None
