"""Giving a lock back to the engine, exactly once in effect, whatever becomes of the replies."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from holdfast._core import retry
from holdfast._core.hold import Hold
from holdfast.engines.base import Found, RequestFailed
from holdfast.errors import LockLost, OutcomeUnknown

if TYPE_CHECKING:
    from holdfast._core.core import Core


async def release_at_engine(core: Core, hold: Hold) -> None:
    """Release the grant of ``hold``, which is RELEASING already. Raises LockLost or OutcomeUnknown.

    If it cannot be finished (unreachable until the deadline, refused, cancelled, interrupted) the caller has the
    watchdog do it until the ttl. A reply may be lost after the engine has done it; so "not there" after an unresolved
    release that was sent before the deadline means that this release did it.
    """
    grant, attempt = hold.grant, hold.grant.attempt
    unresolved = False
    try:
        found = await core.session.release(attempt, hold.policy.request_timeout)
    except RequestFailed as failure:
        again = _Repeated(core, hold, failure)
        found = await again.run()
        unresolved = again.unresolved
    reason = None if found is Found.OURS or unresolved else grant.why_lost(found, core.front.now())
    core.released(hold, reason)
    if attempt.has_leftovers:  # it is over, but one of several servers could not be reached
        core.withdraw_grant(grant)
    if reason is not None:
        raise LockLost(reason, name=hold.policy.name, token=hold.token)


class _Repeated:
    """A release whose first request failed."""

    def __init__(self, core: Core, hold: Hold, failure: RequestFailed) -> None:
        self._core = core
        self._hold = hold
        self._failure = failure
        self.unresolved = False  #: one of its requests may have taken effect
        self._note(failure)

    def _note(self, failure: RequestFailed) -> None:
        self._hold.grant.attempt.unresolved |= failure.may_have_happened
        self.unresolved |= failure.may_have_happened

    async def run(self) -> Found:
        front, deadline = self._core.front, self._hold.grant.deadline
        return await retry.after(self._failure, front, self._request, deadline, self._give_up, random.random)

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
