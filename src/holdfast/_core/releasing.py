"""Releasing: one handle after the other, then the lock: to the next local waiter, or to the engine.

Before the last handle goes, what a primitive keeps with the hold is settled (``Hold.attachment``). It may have left a
last step to the release, for one request to do both (``Hold.deferred``). Then nothing is handed over.

A signal may interrupt every step. A release that was interrupted is finished in the background (:func:`abandon`). At
the engine it takes effect exactly once, whatever becomes of the replies.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast._core import states
from holdfast._core.giving_back import give_back
from holdfast._core.grant import DirectGrant
from holdfast._core.hold import Handle, Hold
from holdfast._core.local_queue import LocalWaiter
from holdfast._core.operations import Call, Running
from holdfast._core.states import AFTER_CONFIRM, AFTER_RELEASE
from holdfast._runtime.base import DONE, Rest
from holdfast.engines.base import Found, RequestFailed
from holdfast.errors import LockLost, LossReason

if TYPE_CHECKING:
    from holdfast._core.core import Core
    from holdfast.observer.events import End


_OURS: Final = Found.OURS  # see states.py
#: Answers that are there; others are awaitables.
_ANSWERS: Final = (Found, RequestFailed)
_HELD: Final = states.HELD
_RELEASE: Final = states.RELEASE
_CONFIRM: Final = states.CONFIRM

#: The last step of a release: ends the grant of a hold that is RELEASING, and has it confirmed.
Finish = Callable[["Core", Hold], Coroutine[Any, Any, None]]


def release(core: Core, hold: Hold, handle: Handle, finish: Finish | None = None) -> Coroutine[Any, Any, None]:
    """Give back one handle; with the last one, the lock. Raises LockLost if it was lost before.

    ``finish``: instead of the release at the engine; see ``bounded``, and detaching.
    """
    itself: list[Running] = []
    coroutine = _release(core, hold, handle, itself, finish or release_at_engine)
    itself.append(weakref.ref(coroutine, core.releasing.on_garbage))
    return coroutine


def give_back_handle(hold: Hold, handle: Handle) -> bool:
    """Give back one of several handles: the lock stays held. No I/O. False: nothing was done, it takes a release."""
    core, handles, key = hold.core, hold.handles, handle._key
    with core.lock:
        if (
            len(handles) < 2
            or key not in handles
            or hold.state is not _HELD
            or not hold.plain
            or core.now() >= (hold._valid_until if hold._grant is None else hold._grant.deadline)
        ):
            return False
        del handles[key]
    if hold._changed is not None:
        hold.notify()
    return True


def start(core: Core, hold: Hold, handle: Handle) -> Rest:
    """As ``release``. DONE: it is over. Else the rest of the release, to be run.

    For what nearly every release is: of the only handle, in time, and no local caller waits. That takes no attempt, and
    no coroutine if the engine blocks.
    """
    policy, grant, direct, queue = hold.policy, hold._grant, core.direct, core.queue
    key, waiters, handles = policy.key, queue.waiters, hold.handles
    if direct is None or (grant is not None and grant.__class__ is not DirectGrant):
        return _hand_on(core, hold, handle) if key in waiters else release(core, hold, handle)
    releasing, call = core.releasing, Call()
    try:
        with core.lock:
            grant = hold._grant  # the watchdog may have made it, or a wait brought another
            if (
                hold.state is not _HELD
                or (grant is not None and grant.__class__ is not DirectGrant)
                or core.now() >= (hold._valid_until if grant is None else grant.deadline)
                or len(handles) != 1
                or handle._key not in handles
                or not hold.plain
                or key in waiters
            ):
                return release(core, hold, handle)
            # In the order of _release: a signal handler that wants the lock must find it occupied.
            releasing.running[hold] = weakref.ref(call, releasing.on_garbage)
            handles.clear()
            hold.state = AFTER_RELEASE  # from here on as _stop_holding
            if core.slotless:
                core.forget_caller(hold)
            grant = hold._grant  # once more, and no call before the next: a signal handler may have had it made
            if grant is None:
                core.young.pop(hold, None)  # type: ignore[call-overload]
                owner = hold._owner
            else:
                grant.hold = None
                core.live.pop(grant, None)
                owner = grant.owner
        if hold._changed is not None:
            hold.notify()
        found: Any
        try:
            if policy.at_engine:
                found = direct.release_shared_directly(policy.mode, key, owner, policy.request_timeout)
            else:
                found = direct.release_directly(key, owner, policy.request_timeout)
        except RequestFailed as failure:
            found = failure
        if found is _OURS:
            _confirmed(core, hold, key)
            releasing.running.pop(hold, None)  # as in _left
            if core.orphaned:
                core.watchdog.wake()
            return DONE
        coroutine = _go_on(core, hold, handle, found)
        releasing.running[hold] = weakref.ref(coroutine, releasing.on_garbage)
        return coroutine
    except BaseException as error:
        try:
            _interrupted(core, hold, handle, error)
        finally:
            del call  # the traceback keeps this frame: see operations.py
        raise


def _hand_on(core: Core, hold: Hold, handle: Handle) -> Rest:
    """As ``start``, while local callers wait for a grant that they may inherit. Then no coroutine is needed."""
    releasing, call = core.releasing, Call()
    try:
        with core.lock:
            handles, now = hold.handles, core.now()
            if (
                hold.state is not _HELD
                or now >= hold.deadline
                or len(handles) != 1
                or handle._key not in handles
                or hold.attachment is not None
                or hold.deferred is not None
                or hold.listeners is not None
            ):
                return release(core, hold, handle)
            try:
                releasing.running[hold] = weakref.ref(call, releasing.on_garbage)  # first: as in start
                handles.clear()
                following = _end(core, hold, now)
            except BaseException:
                abandon(core, hold)  # before the lock is given back: as in _release
                raise
        if hold._changed is not None:
            hold.notify()
        if following is not None:
            following.event.set()
            _left(core, hold)
            return DONE
        coroutine = _go_on(core, hold, handle, None)
        releasing.running[hold] = weakref.ref(coroutine, releasing.on_garbage)
        return coroutine
    except BaseException as error:
        try:
            _interrupted(core, hold, handle, error)
        finally:
            del call  # as in start
        raise


def _confirmed(core: Core, hold: Hold, key: str) -> None:
    """As ``ended``, for a direct release: there is no observer, and mostly no waiter."""
    queue, following = core.queue, None
    occupants = queue.occupants
    with core.lock:
        if hold.state is AFTER_RELEASE:
            hold.state = AFTER_CONFIRM
        else:
            hold.advance(_CONFIRM)  # which cannot be: it raises
        if key in queue.waiters:
            following = queue.vacate(key, hold)
        elif key in occupants and occupants[key] is hold:
            del occupants[key]
    if following is not None:
        following.event.set()


async def _go_on(core: Core, hold: Hold, handle: Handle, found: Any) -> None:
    """The rest of a release that has begun. ``found``: what came of its first request, or the way to it."""
    try:
        if not (found is None or isinstance(found, _ANSWERS)):  # of an engine that is waited for
            direct: Any = core.direct  # which is there: ``start`` has used it
            try:
                found = direct.released(await found)
            except RequestFailed as failure:
                found = failure
        if found is _OURS:
            _confirmed(core, hold, hold.policy.key)
        else:
            await release_at_engine(core, hold, first=found)
    except BaseException as error:
        _interrupted(core, hold, handle, error)
        raise
    _left(core, hold)


async def _release(core: Core, hold: Hold, handle: Handle, itself: list[Running], finish: Finish) -> None:
    if hold.attachment is not None:
        await _settle(core, hold, handle, itself[0])
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
                raise hold.loss(lost)
            hold.notify()
            if at_engine:
                await (finish(core, hold) if hold.deferred is None else hold.deferred.release())
            elif not last and hold.deferred is not None:
                await hold.deferred.make()  # a signal handler of this caller has re-entered the lock, and keeps it
        finally:
            if following is not None:
                following.event.set()
    except BaseException as error:
        _interrupted(core, hold, handle, error)
        if isinstance(error, LockLost):
            core.dispatch(listeners)
        raise
    if last:
        _left(core, hold)


def _left(core: Core, hold: Hold) -> None:
    """Nothing is left to be done of a release. Not called in a ``finally``: if a signal interrupts the clean-up, the
    watchdog does it."""
    core.releasing.running.pop(hold, None)
    if hold.attachment is not None or hold.deferred is not None:
        hold.attachment = hold.deferred = None  # ends reference cycles, as in _end
    if core.orphaned:
        core.watchdog.wake()  # it may have waited for this before it ends


def _interrupted(core: Core, hold: Hold, handle: Handle, error: BaseException) -> None:
    """A release ends by ``error``, perhaps between two steps, or in the clean-up: what was left undone is done in the
    background."""
    if isinstance(error, LockLost):
        handle._lost_on_release(error.reason)
    abandon(core, hold)
    core.repair_slot(hold.policy.key)
    if not hold.handles:
        _left(core, hold)


def finish(core: Core, hold: Hold) -> None:
    """A signal has ended a release or a wait in the middle of its clean-up. Called by the watchdog; no I/O.

    One that had not begun to end the hold changes nothing: its leases are still held.
    """
    with core.lock:
        if hold in core.releasing:
            return  # another caller releases it
        if hold.state is states.PARKED:
            hold.handles.clear()
        if hold.handles:
            return
        hold.take_listeners()
        if hold.state is states.LOST and not core.closed:
            core.withdraw_grant(hold.grant)  # the engine may still have it
        abandon(core, hold)
        hold.attachment = hold.deferred = None
    core.repair_slot(hold.policy.key)
    hold.notify()
    if core.orphaned:
        core.watchdog.wake()


async def _settle(core: Core, hold: Hold, handle: Handle, itself: Running) -> None:
    """The caller's critical section ends, if no other lease of the caller is open. Before the lock is given up."""
    if not hold.held or not hold.handles.keys() - hold.retentions <= {handle._key}:
        return
    assert hold.attachment is not None
    core.releasing.begin(hold, itself)
    try:
        await hold.attachment.settle(failed=hold.failed)
    except BaseException:
        with core.lock:  # interrupted: the rest of the release is done in the background
            hold.handles.pop(handle._key, None)
            hold.take_listeners(handle._key)
            abandon(core, hold)
        hold.notify()
        core.releasing.end(hold)
        raise
    core.releasing.end(hold)


def abandon(core: Core, hold: Hold, outcome: End = "unknown") -> None:
    """Finish a release as far as it got, in the background. Twice does no harm. A parked hold ends as released."""
    waiter = None
    with core.lock:
        if hold.state is states.PARKED and is_over(core, hold):
            hold.handles.clear()
            core.withdraw_unreleased(hold)
            hold.report_end(outcome)
            hold.advance(states.CONFIRM)
        if hold.state is states.REQUESTED and not hold.handles:
            hold.withdraw()
            hold.advance(states.GIVE_UP)
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
    _stop_holding(core, hold)
    # One that has a step to make yet cannot be another caller's before that.
    following = core.queue.hand_over(grant, hold, now) if hold.deferred is None else None
    if following is not None:
        hold.report_end("handed_over")
        hold.advance(states.CONFIRM)
        return following
    core.live.pop(grant, None)
    return None


def _stop_holding(core: Core, hold: Hold) -> None:
    """From here on it does not count as held, and its caller does not find it. The grant is still live."""
    hold.advance(_RELEASE)
    core.forget_caller(hold)
    hold.grant.hold = None  # also ends a reference cycle, which would keep the garbage collector busy


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


def give_up_handle(core: Core, hold: Hold, key: int) -> None:
    """The same for a handle that is no garbage, by a caller that a signal may interrupt: then the watchdog does it."""
    with core.lock:
        handle = hold.handles.get(key)
        if handle is not None:
            core.watchdog.abandoned(handle)
            drop_handle(core, hold, key)


def is_over(core: Core, hold: Hold) -> bool:
    """Whether the hold should have ended, and no caller is about to end it."""
    if hold.state is states.REQUESTED:
        return hold not in core.acquiring
    if hold.state is states.PARKED and not hold.handles:
        return True  # its caller waits for a condition, and finds out
    return hold not in core.releasing and (hold.state is not states.HELD or not hold.handles)


def bounded(until: float) -> Finish:
    """The release at the engine, whose answer is not waited for beyond ``until``: then it is done in the background."""
    return partial(release_at_engine, until=until)


async def release_at_engine(
    core: Core, hold: Hold, until: float | None = None, first: Found | RequestFailed | None = None
) -> None:
    """Release the grant of ``hold``, which is RELEASING already. Raises LockLost or OutcomeUnknown. ``first``: what
    came of the first request, if it was sent already."""
    reason = await give_back(core, hold, until, first)
    ended(core, hold, reason)
    if reason is not None:
        raise hold.loss(reason)


def ended(core: Core, hold: Hold, reason: LossReason | None) -> None:
    """The engine has answered; with a ``reason``, that the lock was lost. The next local waiter's turn."""
    with core.lock:
        if core.reports is not None:  # asked here: it is on the way of every release
            hold.report_end(reason or "released")
        if reason is None:
            hold.advance(_CONFIRM)
        else:
            hold.reason = reason
            hold.advance(states.LOSE)
        waiter = core.queue.vacate(hold.policy.key, hold)
    if waiter is not None:
        waiter.event.set()
