"""One caller among those of its process that want the same name: it takes the slot, or waits for its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast._core import acquire_errors as errors
from holdfast._core import acquire_time
from holdfast._core.grant import Grant
from holdfast._core.local_queue import LocalWaiter, Turn
from holdfast._core.policy import Policy
from holdfast._runtime.base import Event
from holdfast.errors import LockError, UsageError

if TYPE_CHECKING:
    from holdfast._core.core import Core
    from holdfast.observer.reports import Attempt as AttemptReport


class _Unawaited:
    """The event of a caller that takes its turn at once."""

    def set(self) -> None:
        """Nothing waits for it."""

    def is_set(self) -> bool:
        return True

    async def wait(self, until: float | None) -> bool:
        return True


_UNAWAITED: Final = _Unawaited()


class LocalTurn:
    """What an acquisition is to the local queue. The base of Acquisition."""

    policy = None  #: as of a hold that no policy re-enters, see ``Core.reenter``
    # What most never need has its first value here, and is stored once it differs.
    _deadline: float | None = None
    _waiter: LocalWaiter | None = None
    _report: AttemptReport | None = None
    #: When the first request was sent that the engine has not answered yet; None: it has answered them all.
    unanswered_since: float | None = None

    def __init__(self, core: Core, policy: Policy, timeout: float | None, started: float | None = None) -> None:
        self._core = core
        self._policy = policy
        self._timeout = timeout
        if timeout is not None:
            self._deadline = (core.front.now() if started is None else started) + timeout
        if core.reports is not None:
            self._report = core.reports.attempt(policy, timeout)

    @property
    def waiter(self) -> LocalWaiter | None:
        """Its place in the local queue, if it was or is in one."""
        return self._waiter

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
                if _unanswered_since(core.queue.occupant(key)) is None:
                    raise errors.busy(self._policy, self._timeout)
                return True  # unknown whether it is busy: one try needs one answer, so ask the engine too
            self._waiter = LocalWaiter(self, self._policy, core.front.event(), core.front.now())
            core.queue.join(key, self._waiter)
            core.watchdog.check_slots()
            if self._report is not None:
                self._report.waiting()
            return False

    def _take_back(self) -> Grant | None:
        """The grant that was handed over to a waiter which has not run since, if it may be this caller's instead."""
        core, policy = self._core, self._policy
        with core.lock:
            now = core.now()
            self._waiter = LocalWaiter(self, policy, _UNAWAITED, now)
            grant = core.queue.take_back(policy.key, self._waiter, now)
            if grant is None:
                self._waiter = None
        return grant

    async def _await_turn(self) -> Grant | None:
        """An inherited grant, or None: it is our turn to contend."""
        core, key, waiter = self._core, self._policy.key, self._waiter
        assert waiter is not None
        while True:
            await self._until_turn(waiter.event)
            with core.lock:
                if core.queue.accept(key, waiter):
                    break
                if not waiter.event.is_set() or self._is_late():
                    core.queue.leave(key, waiter)
                    raise self._stayed_waiting(waiter.since)
                # Its turn came, and another caller has taken it back. The next one sets the new event: its turn comes
                # first, and that under the lock.
                waiter.event = core.front.event()
        if waiter.turn is Turn.CLOSED:
            raise UsageError("this client was closed while waiting", name=self._policy.name)
        if waiter.turn is Turn.UNREACHABLE:
            raise errors.unreachable_ahead(self._policy, core.engine)
        grant = waiter.inherited if waiter.inherits else None
        if grant is None or (grant.lost is None and grant.deadline > core.front.now()):
            return grant
        core.let_go(grant)
        return None

    async def _until_turn(self, turn: Event) -> None:
        await turn.wait(self._deadline)

    def _is_late(self) -> bool:
        return self._deadline is not None and self._core.front.now() >= self._deadline

    def _stayed_waiting(self, since: float) -> LockError:
        """The error of a caller whose time is over before its turn has come."""
        unanswered = _unanswered_since(self._core.queue.occupant(self._policy.key))
        if unanswered is not None and unanswered <= since:
            # The caller ahead has had no answer for as long as this one would have waited for one?
            enough = acquire_time.long_enough_for_an_answer(self._policy.request_timeout, self._timeout)
            if self._core.front.now() - unanswered >= enough:
                return errors.unreachable_ahead(self._policy, self._core.engine)
        return errors.busy(self._policy, self._timeout)


def _unanswered_since(occupant: Any) -> float | None:
    """Since when the local caller ahead has had no answer; None if the engine answers it."""
    since: float | None = None if occupant is None else occupant.unanswered_since
    return since
