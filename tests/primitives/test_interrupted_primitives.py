"""Ctrl-C in calls of the primitives, at each place where it may interrupt them: nothing is held, or led, or renewed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import holdfast
from holdfast._core.core import Core
from tests.support.signal_injector import SOURCE, HandlerInjector, InjectedInterrupt, SignalInjector
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_warnings_of_dropped_objects")

CORE: Final = (f"{SOURCE}/_core/",)
SYNC: Final = (f"{SOURCE}/_runtime/blocking.py", f"{SOURCE}/primitives/barrier.py")


@pytest.fixture
def client() -> Iterator[holdfast.Client]:
    with holdfast.connect(f"memory:{uuid.uuid4().hex}") as client:
        client.ping()
        yield client


def interrupted(call: Callable[[], Any], number: int, places: tuple[str, ...] = (SOURCE,)) -> list[str]:
    """Make the call with a signal at the place with this number. Where it came; empty if the call has fewer places."""
    injector = SignalInjector(number, places=places)
    try:
        with injector:
            call()
    except InjectedInterrupt:
        pass
    return injector.interrupted_at


def core_of(client: holdfast.Client) -> Core:
    core = client._opened
    assert core is not None
    return core


def test_interrupted_wait_leaves_no_grant_to_be_renewed(client: holdfast.Client) -> None:
    """Regression: interrupted while it gave up the lock, the grant stayed on the list of those that are renewed."""
    number = 0
    while True:
        lock = client.lock(f"a{number}")
        condition = client.condition(lock)
        lease = lock.acquire()
        where = interrupted(lambda: condition.wait(0), number, CORE)  # noqa: B023 - called at once
        lease.release()
        assert not core_of(client).grants_on(lock.name), where
        assert core_of(client).hold_of_caller(lock._policy) is None, where
        if not where:
            break
        number += 1
    assert number > 30


def test_interrupted_campaign_does_not_lead(client: holdfast.Client) -> None:
    """Regression: interrupted when it had just won, it led on, and its caller had no lease."""
    number = 0
    while True:
        election = client.election(f"a{number}")
        where = interrupted(election.campaign, number)
        if not where:
            break
        eventually(lambda: election.leader() is None)  # noqa: B023
        number += 1
    assert number > 50


def test_resign_after_an_interrupted_resign_resigns(client: holdfast.Client) -> None:
    """Regression: the interrupted call had forgotten what it was to release."""
    number = 0
    while True:
        election = client.election(f"a{number}")
        lease = election.campaign()
        where = interrupted(election.resign, number)
        election.resign()
        assert lease.released, where
        if not where:
            break
        number += 1
    assert number > 20


def test_interrupted_enter_is_no_member(client: holdfast.Client) -> None:
    """Regression: interrupted when the round had just opened, it could neither enter again nor did it know it had."""
    number = 0
    while True:
        barrier = client.barrier(f"a{number}", 1)
        where = interrupted(barrier.enter, number, SYNC)
        if not where:
            break
        eventually(lambda: not client.inspect(f"a{number}").holders)  # noqa: B023
        with pytest.raises(holdfast.NotHeld):
            barrier.leave()
        number += 1
    assert number > 5


def test_signal_handler_may_take_and_keep_the_read_lock_that_is_being_released(client: holdfast.Client) -> None:
    """Regression: the release removed the handler's hold in the place of its own, or raised KeyError."""
    number = 0
    while True:
        rwlock = client.rwlock(f"a{number}")
        outer, inner = rwlock.read.acquire(), list[holdfast.Lease]()
        injector = HandlerInjector(number, lambda: inner.append(rwlock.read.acquire()), CORE)  # noqa: B023
        with injector:
            outer.release()
        if not injector.handled:
            break
        assert core_of(client).hold_of_caller(rwlock.read._policy) is inner[0]._hold, injector.interrupted_at
        inner[0].release()
        number += 1
    assert number > 10
