"""Giving a lock back to the engine, exactly once in effect, whatever becomes of the replies."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from holdfast._core import backoff
from holdfast._core.hold import Hold
from holdfast.engines.base import Found, RequestFailed
from holdfast.errors import LockLost, OutcomeUnknown

if TYPE_CHECKING:
    from holdfast._core.core import Core


async def release_at_engine(core: Core, hold: Hold) -> None:
    """Release the grant of ``hold``, whose belief has ended already. Raises LockLost or OutcomeUnknown.

    If it cannot be finished (unreachable until the deadline, refused, cancelled, interrupted) the caller has the
    watchdog do it until the ttl. A reply may be lost after the engine has done it; so "not there" after an unresolved
    release that was sent before the deadline means that this release did it.
    """
    attempt = hold.grant.attempt
    timeout = hold.policy.request_timeout
    unresolved = False
    failures = 0
    found: Found | None = None
    while found is None:
        try:
            found = await core.session.release(attempt, timeout)
        except RequestFailed as failure:
            attempt.unresolved |= failure.may_have_happened
            unresolved |= failure.may_have_happened
            failures += 1
            await _pause(core, hold, failures, failure)
    reason = None if found is Found.OURS or unresolved else hold.grant.why_lost(found, core.front.now())
    core.released(hold, reason)
    if attempt.has_leftovers:  # it is over, but one of several servers could not be reached
        core.withdraw_grant(hold.grant)
    if reason is not None:
        raise LockLost(reason, name=hold.policy.name, token=hold.token)


async def _pause(core: Core, hold: Hold, failures: int, failure: RequestFailed) -> None:
    now, deadline = core.front.now(), hold.grant.deadline
    if now >= deadline:
        raise OutcomeUnknown(
            f"lock {hold.policy.name!r}: {core.engine!r} could not be reached until the lease ran out, so it is not "
            "known whether the release took effect; the lock is free at its ttl at the latest",
            operation="release",
            name=hold.policy.name,
        ) from failure
    await core.front.sleep_until(min(deadline, now + backoff.pause(failures, random.random)))
