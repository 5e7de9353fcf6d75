"""Releasing: one handle after the other, then the lock: to the next local waiter, or to the engine.

Before the last handle goes, what a primitive keeps with the hold is settled (``Hold.attachment``).

A signal may interrupt every step. A release that was interrupted is finished in the background (:func:`abandon`). At
the engine it takes effect exactly once, whatever becomes of the replies.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast._core import retry, states
from holdfast._core.hold import Handle, Hold
from holdfast._core.local_queue import LocalWaiter
from holdfast._core.operations import Running
from holdfast.engines.base import Found, RequestFailed
from holdfast.errors import LockLost, LossReason, OutcomeUnknown

if TYPE_CHECKING:
    from holdfast._core.core import Core
    from holdfast.observer.events import End


_OURS: Final = Found.OURS  # see states.py
#: A release that is not waited for gets at least this long.
_SHORTEST_REQUEST: Final = 0.02


#: The last step of a release: ends the grant of a hold that is RELEASING, and has it confirmed.
Finish = Callable[["Core", Hold], Coroutine[Any, Any, None]]


def release(core: Core, hold: Hold, handle: Handle, finish: Finish | None = None) -> Coroutine[Any, Any, None]:
    """Give back one handle; with the last one, the lock. Raises LockLost if it was lost before.

    ``finish``: instead of the release at the engine; see ``bounded``, and detaching.
    """
    itself: list[Running] = []
    coroutine = _release(core, hold, handle, itself, finish or _release_at_engine)
    itself.append(weakref.ref(coroutine))
    return coroutine


async def _release(core: Core, hold: Hold, handle: Handle, itself: list[Running], finish: Finish) -> None:
    if hold.attachment is not None:
        await _settle(core, hold, handle)
    now = core.front.now()
    if now >= hold.deadline:
        core.expire(hold, now)  # the deadline passed this moment, if not before: reported as a loss
    listeners: list[Callable[[], Any]] = []
    following: LocalWaiter | None = None
    last = at_engine = False
    try:
        try:
            with core.lock:
                if handle._key not in hold.handles:
                    return  # another thread was faster
                try:
                    if len(hold.handles) == 1:
                        # Before its last handle goes: a signal handler that wants the lock must find it occupied.
                        core.releasing.begin(hold, itself[0])
                    hold.handles.pop(handle._key)
                    if hold.listeners:
                        listeners = hold.take_listeners(handle._key)
                    last, lost = not hold.handles, hold.reason
                    if last and lost is None:
                        if hold.state is states.PARKED:
                            abandon(core, hold)  # given back by another caller, or after an interrupted wait
                        else:
                            following = _end(core, hold, now)
                            at_engine = following is None
                    elif last and not core.closed:
                        core.withdraw_grant(hold.grant)  # the engine may still have it
                except BaseException:
                    # Before the lock is given back: what was half handed over must not be seen, then withdrawn.
                    abandon(core, hold)
                    if hold.reason is not None and not hold.handles and not core.closed:
                        core.withdraw_grant(hold.grant)  # interrupted above, before it was: no handle is left to do it
                    raise
            if lost is not None:
                raise LockLost(lost, name=hold.policy.name, token=hold.token)
            hold.notify()
            if at_engine:
                await finish(core, hold)
        finally:
            if following is not None:
                following.event.set()
            if last:
                core.releasing.end(hold)
            if core.orphaned:
                core.watchdog.wake()  # it may have waited for this before it ends
    except BaseException as error:
        # Perhaps interrupted between two steps, or in the clean-up: what was left undone is done in the background.
        abandon(core, hold)
        core.repair_slot(hold.policy.key)
        if not hold.handles:
            core.releasing.end(hold)
        if isinstance(error, LockLost):
            handle._lost_on_release(error.reason)
            core.dispatch(listeners)
        raise


async def _settle(core: Core, hold: Hold, handle: Handle) -> None:
    """The caller's critical section ends, if no other lease of the caller is open. Before the lock is given up."""
    if not hold.held or not hold.handles.keys() - hold.retentions <= {handle._key}:
        return
    assert hold.attachment is not None
    try:
        await hold.attachment.settle(failed=hold.failed)
    except BaseException:
        with core.lock:  # interrupted: the rest of the release is done in the background
            hold.handles.pop(handle._key, None)
            hold.take_listeners(handle._key)
            abandon(core, hold)
        hold.notify()
        raise


def abandon(core: Core, hold: Hold, outcome: End = "unknown") -> None:
    """Finish a release as far as it got, in the background. Twice does no harm. A parked hold ends as released."""
    waiter = None
    with core.lock:
        if hold.state is states.PARKED and is_over(core, hold):
            hold.handles.clear()
            core.withdraw_unreleased(hold)
            hold.report_end(outcome)
            hold.advance(states.CONFIRM)
        if hold.state is states.HELD and not hold.handles:
            waiter = _end(core, hold, core.front.now())
        if hold.state is states.RELEASING and hold.grant.handed_on_by(hold):
            hold.report_end("handed_over")
            hold.advance(states.CONFIRM)
        elif hold.state is states.RELEASING:
            core.live.pop(hold.grant, None)
            core.forget_caller(hold)
            hold.grant.attempt.unresolved = True
            core.withdraw_grant(hold.grant)
            hold.report_end(outcome)
            hold.advance(states.GIVE_UP)
        if waiter is None and hold.state in states.FINAL:
            waiter = core.queue.vacate(hold.policy.key, hold)
    if waiter is not None:
        waiter.event.set()


def _end(core: Core, hold: Hold, now: float) -> LocalWaiter | None:
    """The hold ends here, before any byte is sent. Returns the local waiter to which it was handed over, if any."""
    grant = hold.grant
    if core.reports is not None:
        core.reports.releasing(hold, now)
    hold.advance(states.RELEASE)
    if hold.policy.reentrant:
        core.forget_caller(hold)
    grant.hold = None  # also ends a reference cycle, which would keep the garbage collector busy
    following = core.queue.hand_over(grant, hold, now)
    if following is not None:
        hold.report_end("handed_over")
        hold.advance(states.CONFIRM)
        return following
    core.live.pop(grant, None)
    return None


def drop_handle(core: Core, hold: Hold, key: int) -> bool:
    """A handle is garbage (called by the watchdog): as a release, but the engine is asked in the background.

    Whether it had not been given back.
    """
    with core.lock:
        known = hold.handles.pop(key, None)
        hold.take_listeners(key)
        if hold.handles:
            return known is not None
        if known is not None and hold.state is states.LOST and not core.closed:
            core.withdraw_grant(hold.grant)  # its slot is vacant already, but perhaps the engine still has it
        # If one handle is reported twice, the release of another one may be under way: that is not abandoned.
        if is_over(core, hold):
            how: End = "kept" if key in hold.retentions else "dropped"
            abandon(core, hold, "unknown" if known is None else how)
    hold.notify()
    return known is not None


def is_over(core: Core, hold: Hold) -> bool:
    """Whether the hold should have ended, and no caller is about to end it."""
    if hold.state is states.PARKED and not hold.handles:
        return True  # its caller waits for a condition, and finds out
    return hold not in core.releasing and (hold.state is not states.HELD or not hold.handles)


def bounded(until: float) -> Finish:
    """The release at the engine, whose answer is not waited for beyond ``until``: then it is done in the background."""
    return partial(_release_at_engine, until=until)


async def _release_at_engine(core: Core, hold: Hold, until: float | None = None) -> None:
    """Release the grant of ``hold``, which is RELEASING already. Raises LockLost or OutcomeUnknown."""
    reason = await give_back(core, hold, until)
    ended(core, hold, reason)
    if reason is not None:
        raise LockLost(reason, name=hold.policy.name, token=hold.token)


async def give_back(core: Core, hold: Hold, until: float | None = None) -> LossReason | None:
    """Have the engine release the grant of ``hold``, which does not count as held any more. Why it was lost, if it was.

    If it cannot be finished (unreachable until the deadline or ``until``, refused, cancelled, interrupted) the caller
    has the watchdog do it until the ttl. A reply may be lost after the engine has done it; so "not there" after an
    unresolved release that was sent before the deadline means that this release did it.
    """
    grant, attempt = hold.grant, hold.grant.attempt
    unresolved = False
    timeout = hold.policy.request_timeout
    if until is not None:
        timeout = min(timeout, max(until - core.front.now(), _SHORTEST_REQUEST))
    try:
        found = await core.session.release(attempt, timeout)
    except RequestFailed as failure:
        again = _Repeated(core, hold, failure, until)
        found = await again.run()
        unresolved = again.unresolved
    reason = None if found is _OURS or unresolved else grant.why_lost(found, core.front.now())
    if attempt.has_leftovers:  # it is over, but one of several servers could not be reached
        core.withdraw_grant(grant)  # before the hold is released: if a signal comes in between, all of it is withdrawn
    return reason


def ended(core: Core, hold: Hold, reason: LossReason | None) -> None:
    """The engine has answered; with a ``reason``, that the lock was lost. The next local waiter's turn."""
    with core.lock:
        if core.reports is not None:  # asked here: it is on the way of every release
            hold.report_end(reason or "released")
        hold.reason = reason
        hold.advance(states.CONFIRM if reason is None else states.LOSE)
        waiter = core.queue.vacate(hold.policy.key, hold)
    if waiter is not None:
        waiter.event.set()


class _Repeated:
    """A release whose first request failed."""

    def __init__(self, core: Core, hold: Hold, failure: RequestFailed, until: float | None) -> None:
        self._core = core
        self._hold = hold
        self._until = hold.grant.deadline if until is None else min(until, hold.grant.deadline)
        self._failure = failure
        self.unresolved = False  #: one of its requests may have taken effect
        self._note(failure)

    def _note(self, failure: RequestFailed) -> None:
        self._hold.grant.attempt.unresolved |= failure.may_have_happened
        self.unresolved |= failure.may_have_happened

    async def run(self) -> Found:
        front = self._core.front
        return await retry.after(self._failure, front, self._request, self._until, self._give_up, random.random)

    async def _request(self) -> Found:
        hold = self._hold
        try:
            return await self._core.session.release(hold.grant.attempt, hold.policy.request_timeout)
        except RequestFailed as failure:
            self._note(failure)
            raise

    def _give_up(self, failure: RequestFailed) -> Exception:
        name = self._hold.policy.name
        return OutcomeUnknown(
            f"lock {name!r}: {self._core.engine!r} could not be reached until the lease ran out, so it is not known "
            "whether the release took effect; the lock is free at its ttl at the latest",
            operation="release",
            name=name,
        )
