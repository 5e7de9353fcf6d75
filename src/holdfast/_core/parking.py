"""Parking: a caller gives its lock up for a while, and takes it again into the same hold. For conditions.

All handles of the hold stay. None counts as held from before the first byte of the release is sent until the new grant,
which has an owner and a token of its own. Whatever interrupts a wait (a signal, a cancelled task), the handles end as
released: coming back could take for ever. Nothing stays at the engine then, and leaving the ``with`` block is quiet.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast._core import releasing, states
from holdfast._core.acquisition import Acquisition
from holdfast._core.call_site import CallSite
from holdfast._core.giving_back import give_back
from holdfast._core.grant import Grant
from holdfast._core.hold import Handle, Hold
from holdfast._core.installing import install
from holdfast._core.operations import Running
from holdfast._runtime.base import Event
from holdfast.engines.base import Attempt
from holdfast.errors import LossReason, NotHeld

if TYPE_CHECKING:
    from holdfast._core.core import Core

T = TypeVar("T")

#: How often a caller that comes back does what it is asked to do meanwhile, in seconds.
_MEANWHILE: Final = 1.0


def away(
    core: Core, hold: Hold, sleep: Callable[[], Awaitable[T]], meanwhile: Callable[[], Awaitable[object]]
) -> Coroutine[Any, Any, T]:
    """Give up the lock of ``hold``, run ``sleep()``, take the lock again, and return what ``sleep`` returned.

    ``meanwhile`` is called about once a second while it waits for the lock. Raises LockLost if it was lost before it
    was given up, OutcomeUnknown if the engine could not be reached for that, and what an acquire raises.
    """
    itself: list[Running] = []
    coroutine = _away(core, hold, sleep, meanwhile, itself)
    itself.append(weakref.ref(coroutine, core.releasing.on_garbage))
    return coroutine


async def _away(
    core: Core,
    hold: Hold,
    sleep: Callable[[], Awaitable[T]],
    meanwhile: Callable[[], Awaitable[object]],
    itself: list[Running],
) -> T:
    try:
        await _park(core, hold, itself[0])
        result = await sleep()
        await core.begin(Resumption(core, hold, meanwhile), _NoHandle(hold))
        check(hold)
    except BaseException:
        end(core, hold)
        core.releasing.end(hold)
        raise
    core.releasing.end(hold)
    return result


def check(hold: Hold) -> None:
    """Raise if ``hold`` has ended: LockLost, or NotHeld if all its leases were released."""
    if hold.state is states.PARKED or hold.held:
        return
    if hold.reason is not None:
        raise hold.loss(hold.reason)
    raise NotHeld(f"{hold.policy.title} was released while it waited", name=hold.policy.name)


def end(core: Core, hold: Hold) -> None:
    """All handles end as released, and nothing stays at the engine. No I/O; what is left is done in the background."""
    with core.lock:
        if hold.state not in states.FINAL:
            hold.handles.clear()
            hold.take_listeners()
        releasing.abandon(core, hold)  # also if it has ended: a signal may have come before its slot was vacated
    hold.notify()


async def _park(core: Core, hold: Hold, itself: Running) -> None:
    following = None
    try:
        with core.lock:
            check(hold)
            # Before it is parked: a signal handler that wants the lock must find that this is under way.
            core.releasing.begin(hold, itself)
            grant, now = hold.grant, core.front.now()
            if core.reports is not None:
                core.reports.releasing(hold, now)
            hold.unreleased = grant
            hold.advance(states.PARK)
            try:
                core.forget_caller(hold)
                grant.hold = None
                following = core.queue.hand_over(grant, hold, now)
                if following is not None:
                    hold.unreleased = None
                    hold.report_end("handed_over")
                else:
                    core.live.pop(grant, None)
            except BaseException:
                # Before the lock is given back: what was half handed over must not be seen, then withdrawn.
                if grant.handed_on_by(hold):
                    hold.unreleased = None
                raise
        if following is None:
            _released(core, hold, await give_back(core, hold))
    finally:
        if following is not None:
            following.event.set()
    check(hold)


def _released(core: Core, hold: Hold, reason: LossReason | None) -> None:
    """The engine has answered; with a ``reason``, that the lock was lost before. The next local waiter's turn."""
    with core.lock:
        if hold.state is not states.PARKED:
            return  # ended meanwhile, with all that this would do
        hold.report_end(reason or "released")
        hold.unreleased = None
        waiter = core.queue.vacate(hold.policy.key, hold)
    if waiter is not None:
        waiter.event.set()
    if reason is not None:
        core.lose_parked(hold, reason)


class _NoHandle:
    """In the place of a handle: a parked hold has its own already."""

    __slots__ = ("__weakref__", "_acquired_at", "_caller", "_key")
    _hold: Hold  #: not set: it is never added to a hold

    def __init__(self, hold: Hold) -> None:
        self._key: Final = -1
        self._caller: Hashable = hold.caller
        self._acquired_at: CallSite | None = None

    def _lost_on_release(self, reason: LossReason) -> None:
        """It is never released."""


class Resumption(Acquisition):
    """An acquire into a parked hold."""

    def __init__(self, core: Core, hold: Hold, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(core, hold.policy, None)
        self._hold = hold
        self._meanwhile = meanwhile
        self._due = core.front.now() + _MEANWHILE

    def _begin_hold(self, grant: Grant, handle: Handle, inherited: bool, now: float) -> Hold:
        install(self._core, self._hold, grant, self, None, inherited)
        return self._hold

    async def _until_turn(self, turn: Event) -> None:
        while not await turn.wait(self._due):
            await self._do_meanwhile()

    async def _wait(self, attempt: Attempt, sent: float) -> None:
        await super()._wait(attempt, sent)
        if self._core.front.now() >= self._due:
            await self._do_meanwhile()

    async def _do_meanwhile(self) -> None:
        check(self._hold)
        await self._meanwhile()
        self._due = self._core.front.now() + _MEANWHILE

    def _give_up_grant(self) -> None:
        grant = self._grant
        if grant is None or grant.hold is not self._hold:
            super()._give_up_grant()
            return
        # Interrupted when the hold had the grant. It ends; if it was not resumed, the grant was never its own. (Its
        # wait may have ended it meanwhile.)
        if self._hold.state is not states.HELD:
            grant.attempt.unresolved = True
            self._core.let_go(grant)
        end(self._core, self._hold)
