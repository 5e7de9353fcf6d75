"""Renewal: on the user's own request, and what a request for renewal brought, sorted for the log and the observer."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast._core import lease_time, retry
from holdfast._core.grant import Grant
from holdfast._core.hold import Hold
from holdfast.engines.base import Found, RequestFailed

if TYPE_CHECKING:
    from holdfast._core.core import Core


class RenewedBatch:
    """Made before the answers take effect: ``grant.failing`` is still that of the renewal before."""

    __slots__ = ("confirmed", "failed", "failure", "newly_failing", "recovered")

    def __init__(self, grants: Sequence[Grant], answers: Iterable[Found | Exception]) -> None:
        self.confirmed: list[Grant] = []
        self.recovered: list[Grant] = []  #: of the confirmed, those whose last renewal had failed
        self.failed: list[Grant] = []
        self.newly_failing: list[Grant] = []  #: of the failed, those whose last renewal had succeeded
        self.failure: Exception | None = None  #: of the first that failed
        for grant, answer in zip(grants, answers, strict=True):
            if answer is Found.OURS:
                self.confirmed.append(grant)
                if grant.failing:
                    self.recovered.append(grant)
            elif isinstance(answer, Exception):
                self.failed.append(grant)
                if not grant.failing:
                    self.newly_failing.append(grant)
                if self.failure is None:
                    self.failure = answer


async def renew(core: Core, hold: Hold, ttl: float) -> None:
    """Make the lease valid for at least ``ttl`` from now, and have the watchdog keep it so. Never shortens."""
    front, grant = core.front, hold.grant
    grant.longest_ttl = max(grant.longest_ttl, ttl)  # whether or not an answer comes
    sent = front.now()

    async def request() -> Found:
        nonlocal sent
        if not hold.held:
            raise hold.loss()
        sent = front.now()
        timeout = lease_time.request_timeout(core.options.request_timeout, min(ttl, grant.ttl))
        found: Found = await core.session.renew(grant.attempt, ttl, timeout)
        return found

    def give_up(failure: RequestFailed) -> Exception:
        policy = hold.policy
        message = f"{policy.title} could not be renewed: {core.engine!r} could not serve: {failure}"
        return retry.unavailable(message, failure, name=hold.policy.name)

    limit = sent + core.options.unavailable_after
    answer = await retry.until_answered(front, request, limit, give_up, random.random)
    if answer is not Found.OURS:
        core.lose_grant(grant, grant.why_lost(answer, front.now()))
    elif hold.held:
        if core.reports is not None:
            core.reports.batch(RenewedBatch([grant], [answer]), sent, front.now())
        core.renewed(grant, sent, ttl)
        return
    raise hold.loss()
