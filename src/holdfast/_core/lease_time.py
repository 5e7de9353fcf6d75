"""Lease arithmetic. Pure: callers pass the clock's readings in."""

from __future__ import annotations

from typing import Final

#: Renew every third of the ttl: two renewals may be missed before a hold expires.
RENEWALS_PER_TTL: Final = 3
#: A hold expires this much before the engine's lease: covers the rounding of clocks and the rate error of two of them.
_MARGIN_FLOOR: Final = 0.005
_MARGIN_SHARE: Final = 0.01


def margin(ttl: float) -> float:
    """How much earlier than the engine's lease a hold expires."""
    return max(_MARGIN_FLOOR, ttl * _MARGIN_SHARE)


def deadline(sent: float, ttl: float, slack: float = 0.0) -> float:
    """Until when a hold is valid, by a confirmed lease-setting request. ``slack``: the engine's own margin, if larger.

    ``sent`` must be read *before* the first byte of the request left: the engine starts counting when the request
    arrives, which may be any time after; counting from the reply would count time that has already passed.
    """
    return sent + ttl - max(margin(ttl), slack)


def renew_at(confirmed: float, ttl: float, slack: float = 0.0) -> float:
    """When to renew next, after a request sent at ``confirmed`` was confirmed."""
    return confirmed + (ttl - slack) / RENEWALS_PER_TTL


def retry_at(now: float, ttl: float, end: float) -> float:
    """When to try again after a failed renewal: soon, and at ``end`` (the deadline) at the latest."""
    return min(now + max(0.02, ttl / 20), max(end, now))


def request_timeout(configured: float, ttl: float) -> float:
    """A request may take no longer than a third of the lease it is about."""
    return min(configured, ttl / RENEWALS_PER_TTL)
