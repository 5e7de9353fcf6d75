"""Renewal: on the user's own request, and what a request for renewal brought."""

from __future__ import annotations

import logging
import random
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from holdfast._core import lease_time, retry
from holdfast._core.grant import Grant
from holdfast._core.hold import Hold
from holdfast._core.logs import log_later
from holdfast.engines.base import Found, RequestFailed

if TYPE_CHECKING:
    from holdfast._core.core import Core

_log: Final = logging.getLogger("holdfast.watchdog")


class RenewedBatch:
    """The answers to one request, sorted for the log and the observer.

    Made before the answers take effect: ``grant.failing`` is still that of the renewal before.
    """

    __slots__ = ("confirmed", "failed", "failure", "newly_failing", "recovered")

    def __init__(self, grants: Sequence[Grant], answers: Iterable[Found | Exception]) -> None:
        pairs = list(zip(grants, answers, strict=True))
        self.confirmed = [grant for grant, answer in pairs if answer is Found.OURS]
        #: Of the confirmed, those whose last renewal had failed.
        self.recovered = [grant for grant in self.confirmed if grant.failing]
        failures = [(grant, answer) for grant, answer in pairs if isinstance(answer, Exception)]
        self.failed = [grant for grant, _ in failures]
        #: Of the failed, those whose last renewal had succeeded.
        self.newly_failing = [grant for grant in self.failed if not grant.failing]
        self.failure = failures[0][1] if failures else None  #: of the first that failed

    def log_changes(self) -> None:
        """Not each failure: an outage is one line for all leases that it touches, and one for its end."""
        if self.newly_failing:
            first = _and_more(self.newly_failing)
            log_later(_log, logging.WARNING, "%s could not be renewed yet: %s", first, self.failure)
        if self.recovered:
            log_later(_log, logging.INFO, "%s was renewed again", _and_more(self.recovered))


def _and_more(grants: Sequence[Grant]) -> str:
    title, others = grants[0].policy.title, len(grants) - 1
    return f"{title} (and {others} more)" if others else title


def confirm(grants: Iterable[Grant], live: Container[Grant], sent: float, ttl: float) -> None:
    """A request that was first transmitted after ``sent`` has set the leases of ``grants``; those that are still live
    are due again later. The caller holds the core's lock."""
    # As a rule all of them have one deadline, and one time when they are due: both are computed once.
    lease = slack = 0.0
    deadline = due = sent
    for grant in grants:
        if grant.ttl != lease or grant.slack != slack:
            lease, slack = grant.ttl, grant.slack
            deadline, due = lease_time.deadline(sent, ttl, slack), lease_time.renew_at(sent, lease, slack)
        grant.extend(deadline)
        grant.watched = grant.early = True
        if grant in live:
            grant.due = not_after_its_end(grant, due)


def not_after_its_end(grant: Grant, due: float) -> float:
    """When to look at ``grant``: a lease that is not renewed, or one with ``max_hold``, may end before ``due``."""
    # (One that is not renewed is confirmed when the engine hinted at a loss: that does not move its deadline.)
    if grant.deadline < due:
        due = grant.deadline
    hold = grant.hold
    if hold is not None and hold.ends is not None and hold.ends < due:
        due = hold.ends
    return due


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
