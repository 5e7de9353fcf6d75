"""How long a lease is valid: taken from the lease itself, since a test may observe it too late."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from holdfast.testing.conformance.world import ends
from tests.support.waiting import until
from tests.zookeeper.support import confirmed

_POLL: Final = 0.002


async def until_renewed(lease: Any, since: float) -> None:
    """Wait until the leader has confirmed ``lease`` by a request sent after ``since``; fail if it was lost."""
    await until(lambda: not lease.held or confirmed(lease) > since)
    assert lease.held, f"lost: {lease.lost_reason}"


async def end_of_validity(lease: Any) -> float:
    """Wait for the end of the lease and return its time. Renewals may still move it."""
    end = ends(lease)
    while lease.held:
        end = max(end, ends(lease))
        await asyncio.sleep(_POLL)
    return end
