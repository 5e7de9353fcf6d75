"""Waiting for an event with a deadline, in place of a sleep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from holdfast._runtime import clock
from holdfast.testing.conformance.world import ends

T = TypeVar("T")

#: A ttl for what must not be lost: renewed after a third of it, so there is time for that if the machine stalls.
LASTING: Final = 2.0
_POLL: Final = 0.002


def eventually(
    what: Callable[[], T],
    within: float = 5.0,
    event: str = "the event",
    *,
    not_yet: tuple[type[Exception], ...] = (),
    failure: type[Exception] = AssertionError,
) -> T:
    """Wait until ``what()`` is true, and return its value; raise ``failure`` after ``within`` seconds.

    An exception of the kinds ``not_yet`` counts as false. The message has the ``event``, the last value and exception.
    """
    deadline = time.monotonic() + within
    while True:
        value, error = _ask(what, not_yet)
        if value:
            return value
        if time.monotonic() >= deadline:
            raise failure(_too_late(event, within, value, error)) from error
        time.sleep(_POLL)


async def until(what: Callable[[], T], within: float = 10.0, event: str = "the event") -> T:
    """As ``eventually``, on an event loop: its tasks run while this waits."""
    deadline = time.monotonic() + within
    while not (value := what()):
        assert time.monotonic() < deadline, _too_late(event, within, value)
        await asyncio.sleep(_POLL)
    return value


def _ask(what: Callable[[], T], not_yet: tuple[type[Exception], ...]) -> tuple[T | None, Exception | None]:
    try:
        return what(), None
    except not_yet as error:
        return None, error


def _too_late(event: str, within: float, value: object, error: Exception | None = None) -> str:
    last = f"last error: {error}" if error is not None else f"last value: {value!r}"
    return f"{event}: not within {within:g} s; {last}"


def renewed(*leases: Any) -> Callable[[], bool]:
    """A question to be asked until the answer is yes: whether the engine has confirmed ``leases``, all of them, by
    requests that were sent after this call. Fails if one is lost."""
    since = clock.now()

    def answer() -> bool:
        for lease in leases:
            assert lease.held, f"{lease.name} was lost: {lease.lost_reason}"
        return all(ends(lease) > since + lease.ttl for lease in leases)

    return answer
