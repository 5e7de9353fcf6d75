"""Signals and cancellations in calls of the primitives on an event loop: nothing stays held, queued or open."""

from __future__ import annotations

import gc
import itertools
import uuid
from collections.abc import Iterator

import pytest

from tests.primitives.async_calls import CALLS, CALLS_FOR_TWO, AsyncCaller, async_caller
from tests.support.signal_injector import SignalInjector
from tests.support.soak import soak

pytestmark = pytest.mark.usefixtures("no_warnings_of_dropped_objects")

#: A prime number of places, so that the sample differs from call to call.
_SAMPLE = 37


@pytest.fixture
def in_memory() -> Iterator[AsyncCaller]:
    with async_caller(f"memory:{uuid.uuid4().hex}") as caller:
        yield caller


@pytest.fixture
def at_redis(redis_url: str) -> Iterator[AsyncCaller]:
    with async_caller(redis_url) as caller:
        yield caller


def signals_everywhere(caller: AsyncCaller, name: str, step: int = 1) -> int:
    """A signal at every ``step``-th place of the call."""
    for first in itertools.count(0, step):
        injector = SignalInjector(first)
        caller.interrupted(CALLS[name], injector)
        if not injector.interrupted_at:
            return first
    raise AssertionError("not reached")


@pytest.mark.parametrize("step", [5, soak(1, reason="every place of every call")])
@pytest.mark.parametrize("name", CALLS)
def test_signal_at_every_place_leaves_nothing(in_memory: AsyncCaller, name: str, step: int) -> None:
    assert signals_everywhere(in_memory, name, step) > 100


def two_signals(caller: AsyncCaller, name: str, first: int, then_step: int) -> bool:
    """A signal at this place of the call, and a second one in its clean-up, at every ``then_step``-th place of that.
    Whether the call has so many places."""
    for then in itertools.count(first % then_step, then_step):
        injector = SignalInjector(first, then)
        caller.interrupted(CALLS_FOR_TWO[name], injector)
        if len(injector.interrupted_at) < 2:
            return bool(injector.interrupted_at)
    raise AssertionError("not reached")


@pytest.mark.parametrize(
    "step, then_step",
    [
        (29, 13),
        soak(2, 3, reason="every second place of every call, and every third of its clean-up"),
    ],
)
@pytest.mark.parametrize("name", CALLS_FOR_TWO)
@pytest.mark.timeout(600)
def test_two_signals_leave_nothing(in_memory: AsyncCaller, name: str, step: int, then_step: int) -> None:
    for first in itertools.count(0, step):
        if not two_signals(in_memory, name, first, then_step):
            break
    assert first > 100


@pytest.mark.parametrize("step", [_SAMPLE, soak(1, reason="every place of every call at a server")])
def test_signal_in_calls_at_redis_leaves_nothing(
    at_redis: AsyncCaller, step: int, caplog: pytest.LogCaptureFixture
) -> None:
    for name in CALLS:
        assert signals_everywhere(at_redis, name, step) > 150
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_cancelled_at_every_await_nothing_is_left(in_memory: AsyncCaller, name: str, answered: bool) -> None:
    for number in itertools.count():
        if not in_memory.cancelled(CALLS[name], number, answered=answered):
            break


@pytest.mark.parametrize("answered", [False, True])
def test_cancelled_at_every_await_of_calls_at_redis_nothing_is_left(at_redis: AsyncCaller, answered: bool) -> None:
    for name in CALLS:
        for number in itertools.count():
            if not at_redis.cancelled(CALLS[name], number, answered=answered):
                break
        assert number >= 2
