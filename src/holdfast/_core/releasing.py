"""Giving a lock back to the engine, exactly once in effect, whatever becomes of the replies."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from holdfast._core import backoff, lease_time, states
from holdfast._core.hold import Hold
from holdfast.engines.base import Found, RequestFailed
from holdfast.errors import LockLost, LossReason, OutcomeUnknown

if TYPE_CHECKING:
    from holdfast._core.core import Core


async def release_at_engine(core: Core, hold: Hold) -> None:
    """Release the grant of ``hold``, whose belief has ended already. Raises LockLost or OutcomeUnknown.

    If it cannot be finished (unreachable until the deadline, refused, cancelled, interrupted) the caller has the
    watchdog do it until the ttl. A reply may be lost after the engine has done it; so "not there" after an unresolved
    release that was sent before the deadline means that this release did it.
    """
    try:
        found, unresolved = await _until_answered(core, hold)
    except RequestFailed as failure:
        raise OutcomeUnknown(
            f"lock {hold.policy.name!r}: {core.engine!r} could not be reached until the lease ran out, so it is not known "
            "whether the release took effect; the lock is free at its ttl at the latest",
            operation="release",
            name=hold.policy.name,
        ) from failure
    lost = found is not Found.OURS and not unresolved
    with core.lock:
        if lost:
            hold.reason = _why_gone(core, hold, found)
        hold.state = states.step(hold.state, states.Event.LOSE if lost else states.Event.CONFIRM)
    core.vacate(hold)
    if hold.reason is not None:
        raise LockLost(hold.reason, name=hold.policy.name, token=hold.token)


async def _until_answered(core: Core, hold: Hold) -> tuple[Found, bool]:
    grant, front = hold.grant, core.front
    timeout = lease_time.request_timeout(core.options.request_timeout, grant.claim.ttl)
    unresolved = False
    failures = 0
    while True:
        try:
            return await core.session.release(grant.claim, timeout), unresolved
        except RequestFailed as failure:
            grant.claim.unresolved |= failure.may_have_happened
            unresolved |= failure.may_have_happened
            failures += 1
            if front.now() >= grant.deadline:
                raise
            await front.sleep_until(min(grant.deadline, front.now() + backoff.pause(failures, random.random)))


def _why_gone(core: Core, hold: Hold, found: Found) -> LossReason:
    if found is Found.STOLEN:
        return "stolen"
    return "expired" if core.front.now() >= hold.grant.deadline else "broken"
