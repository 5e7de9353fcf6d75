"""Repeating a request that got no answer: when to try again, when to give up, and with which error.

No clock and no dice of its own: the runtime and ``random.random`` are passed in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from holdfast._runtime.base import Runtime
from holdfast.engines.base import RequestFailed
from holdfast.errors import EngineUnavailable, QuorumLost, QuorumLostOutcomeUnknown, UnavailableOutcomeUnknown

T = TypeVar("T")
Dice = Callable[[], float]

_FIRST: Final = 0.005
_CAP: Final = 0.25


def pause(failures: int, dice: Dice) -> float:
    """Seconds before try number ``failures + 1``: exponential, with jitter so that clients do not retry in step."""
    ceiling = min(_CAP, _FIRST * 2.0 ** min(failures, 10))
    return ceiling * (0.5 + dice() / 2)


async def back_off(runtime: Runtime, failures: int, limit: float, dice: Dice) -> bool:
    """Sleep before the next try, at most until ``limit``. False, and no sleep: ``limit`` has passed, so give up."""
    now = runtime.now()
    if now >= limit:
        return False
    await runtime.sleep_until(min(limit, now + pause(failures, dice)))
    return True


async def until_answered(
    runtime: Runtime,
    request: Callable[[], Awaitable[T]],
    limit: float,
    give_up: Callable[[RequestFailed], Exception],
    dice: Dice,
) -> T:
    """Send ``request`` until it is answered. At ``limit``, raise what ``give_up`` makes of the last failure."""
    try:
        return await request()
    except RequestFailed as failure:
        return await after(failure, runtime, request, limit, give_up, dice)


async def after(
    failure: RequestFailed,
    runtime: Runtime,
    request: Callable[[], Awaitable[T]],
    limit: float,
    give_up: Callable[[RequestFailed], Exception],
    dice: Dice,
) -> T:
    """The same after the first try has failed: so a request that is answered does not pay for the loop."""
    failures = 1
    while await back_off(runtime, failures, limit, dice):
        try:
            return await request()
        except RequestFailed as again:
            failure = again
            failures += 1
    raise give_up(failure) from failure


def unavailable(message: str, failure: RequestFailed, *, name: str | None = None) -> EngineUnavailable:
    """The error of a request that did not take effect: one for a server, one for a majority of several."""
    if failure.errors is None:
        return EngineUnavailable(message, name=name)
    return QuorumLost(message, name=name, errors=failure.errors)


def outcome_unknown(message: str, failure: RequestFailed, *, operation: str, name: str) -> EngineUnavailable:
    """The error of a request that may have taken effect."""
    if failure.errors is None:
        return UnavailableOutcomeUnknown(message, operation=operation, name=name)
    return QuorumLostOutcomeUnknown(message, operation=operation, name=name, errors=failure.errors)
