"""The request that gives a grant back to the engine. Whatever becomes of the replies, it takes effect exactly once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from holdfast._core import retry
from holdfast._core.hold import Hold
from holdfast.engines.base import Found, RequestFailed
from holdfast.errors import LossReason, OutcomeUnknown

if TYPE_CHECKING:
    from holdfast._core.core import Core

_OURS: Final = Found.OURS  # see states.py
#: A release that is not waited for gets at least this long.
_SHORTEST_REQUEST: Final = 0.02


async def give_back(
    core: Core, hold: Hold, until: float | None = None, first: Found | RequestFailed | None = None
) -> LossReason | None:
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
        if isinstance(first, RequestFailed):
            raise first
        found = first or await core.session.release(attempt, timeout)
    except RequestFailed as failure:
        again = _Repeated(core, hold, failure, until)
        found = await again.run()
        unresolved = again.unresolved
    reason = None if found is _OURS or unresolved else grant.why_lost(found, core.front.now())
    if attempt.has_leftovers:  # it is over, but one of several servers could not be reached
        core.withdraw_grant(grant)  # before the hold is released: if a signal comes in between, all of it is withdrawn
    return reason


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
        policy = self._hold.policy
        return OutcomeUnknown(
            f"{policy.title}: {self._core.engine!r} could not be reached until the lease ran out, so it is not known "
            "whether the release took effect; it is free at its ttl at the latest",
            operation="release",
            name=policy.name,
        )
