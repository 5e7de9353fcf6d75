"""Waiting for an event with a deadline, instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from holdfast.testing.conformance.world import ends

#: A ttl for what must not be lost: renewed after a third of it, it outlasts a machine that stands still for a second.
LASTING: Final = 2.0


def eventually(what: Callable[[], object], within: float = 5.0) -> float:
    """Wait until ``what()`` is true; fail after ``within`` seconds. Returns how long it took."""
    start = time.monotonic()
    while not what():
        assert time.monotonic() - start < within, f"did not happen within {within:g} s"
        time.sleep(0.002)
    return time.monotonic() - start


def until_renewed(lease: Any, within: float = 5.0) -> None:
    """Wait until the engine has confirmed ``lease`` anew, so that it ends later than it would have."""
    before = ends(lease)
    eventually(lambda: not lease.held or ends(lease) > before + 0.1 * lease.ttl, within)
    assert lease.held, f"lost: {lease.lost_reason}"


async def until_renewed_async(lease: Any, within: float = 5.0) -> None:
    """The same on an event loop."""
    before = ends(lease)
    async with asyncio.timeout(within):
        while lease.held and ends(lease) <= before + 0.1 * lease.ttl:
            await asyncio.sleep(0.01)
    assert lease.held, f"lost: {lease.lost_reason}"
