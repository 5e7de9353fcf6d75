"""Waiting for an event with a deadline, instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from holdfast._runtime import clock
from holdfast.testing.conformance.world import ends

#: A ttl for what must not be lost: renewed after a third of it, so there is time for that if the machine stands still.
LASTING: Final = 2.0
_POLL: Final = 0.002


def eventually(what: Callable[[], object], within: float = 5.0) -> float:
    """Wait until ``what()`` is true; fail after ``within`` seconds. Returns how long it took."""
    start = time.monotonic()
    while not what():
        assert time.monotonic() - start < within, f"did not happen within {within:g} s"
        time.sleep(_POLL)
    return time.monotonic() - start


async def until(what: Callable[[], object], within: float = 10.0) -> None:
    """The same on an event loop, where tasks run meanwhile."""
    deadline = clock.now() + within
    while not what():
        assert clock.now() < deadline, f"did not happen within {within:g} s"
        await asyncio.sleep(_POLL)


def renewed(*leases: Any) -> Callable[[], bool]:
    """A question to be asked until the answer is yes: whether the engine has confirmed ``leases``, all of them, by
    requests that were sent after this call. Fails if one is lost."""
    since = clock.now()

    def answer() -> bool:
        for lease in leases:
            assert lease.held, f"{lease.name} was lost: {lease.lost_reason}"
        return all(ends(lease) > since + lease.ttl for lease in leases)

    return answer
