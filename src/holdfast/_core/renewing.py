"""Renewal on the user's own request."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from holdfast._core import backoff, lease_time, unavailable
from holdfast._core.hold import Hold
from holdfast._core.renewed_batch import RenewedBatch
from holdfast.engines.base import Found, RequestFailed
from holdfast.errors import LockLost

if TYPE_CHECKING:
    from holdfast._core.core import Core


async def renew(core: Core, hold: Hold, ttl: float) -> None:
    """Make the lease valid for at least ``ttl`` from now, and let the watchdog keep it so. Never shortens."""
    front = core.front
    hold.grant.longest_ttl = max(hold.grant.longest_ttl, ttl)  # whether or not an answer comes
    since = sent = front.now()
    failures = 0
    answer: Found | None = None
    while answer is None:
        if not hold.held:
            raise LockLost(hold.lost or "expired", name=hold.policy.name, token=hold.token)
        sent = front.now()
        timeout = lease_time.request_timeout(core.options.request_timeout, min(ttl, hold.grant.ttl))
        try:
            answer = await core.session.renew(hold.grant.attempt, ttl, timeout)
        except RequestFailed as failure:
            failures += 1
            if front.now() - since >= core.options.unavailable_after:
                raise unavailable.error(
                    f"lock {hold.policy.name!r} could not be renewed: {core.engine!r} could not serve: {failure}",
                    failure,
                    name=hold.policy.name,
                ) from failure
            await front.sleep_until(front.now() + backoff.pause(failures, random.random))
    if answer is not Found.OURS:
        core.lose_grant(hold.grant, hold.grant.why_lost(answer, front.now()))
    elif hold.held:
        if core.reports is not None:
            core.reports.batch(RenewedBatch([hold.grant], [answer]), sent, front.now())
        core.renewed(hold.grant, sent, ttl)
        return
    raise LockLost(hold.lost or "expired", name=hold.policy.name, token=hold.token)
