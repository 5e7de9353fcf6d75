"""Lease arithmetic. Pure: callers pass the clock's readings in."""

from __future__ import annotations

from typing import Final

from holdfast.engines.clock_margin import clock_margin

#: Renew every third of the ttl: two renewals may be missed before a hold expires. A request takes no longer than that
#: (contract C11).
RENEWALS_PER_TTL: Final = 3


def deadline(sent: float, ttl: float, slack: float = 0.0) -> float:
    """Until when a hold is valid, by a confirmed lease-setting request. ``slack``: the engine's own margin, if larger.

    ``sent`` must be read *before* the first byte of the request left: the engine starts counting when the request
    arrives, which may be any time after; counting from the reply would count time that has already passed.
    """
    return sent + ttl - max(clock_margin(ttl), slack)


def renew_at(confirmed: float, ttl: float, slack: float = 0.0) -> float:
    """When to renew next, after a request sent at ``confirmed`` was confirmed."""
    return confirmed + (ttl - slack) / RENEWALS_PER_TTL


def retry_at(now: float, ttl: float, end: float) -> float:
    """When to try again after a failed renewal: soon, and at ``end`` (the deadline) at the latest."""
    return min(now + max(0.02, ttl / 20), max(end, now))


def request_timeout(configured: float, ttl: float) -> float:
    """A request may take no longer than a third of the lease it is about."""
    return min(configured, ttl / RENEWALS_PER_TTL)


def is_long_enough(lease: float, deadline: float, now: float) -> bool:
    """Whether a short lease that was handed over leaves enough time for the renewal that confirms it."""
    return deadline - now >= lease / 2
