"""Acquires with a timeout: when they look for the last time, and what they report."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast._core import acquire_time
from holdfast._runtime import clock
from holdfast.engines.base import RequestFailed

#: Of the acquire (s). Long: a stall of the machine must not make it miss its last look.
TIMEOUT = 2.0


@pytest.fixture
def url() -> Iterator[str]:
    """A store in which the lock "a" is held."""
    url = f"memory:{uuid.uuid4().hex}"
    with holdfast.connect(url) as holder, holder.lock("a"):
        yield url


def fail_after(client: holdfast.Client, moment: float) -> list[float]:
    """Have no request for a lock answered that is sent after ``moment``. When each was sent."""
    client.ping()
    core: Any = client._opened
    acquire, sent = core.session.acquire, list[float]()

    async def failing(attempt: Any, timeout: float) -> Any:
        sent.append(clock.now())
        if sent[-1] >= moment:
            raise RequestFailed("no reply in time", may_have_happened=True)
        return await acquire(attempt, timeout)

    core.session.acquire = failing
    return sent


def test_lock_is_busy_if_the_engine_pauses_at_the_deadline(url: str) -> None:
    """Regression: the last look was sent at the deadline and had 50 ms; a slow answer to it meant "unreachable"."""
    with holdfast.connect(url) as client:
        deadline = clock.now() + TIMEOUT
        sent = fail_after(client, deadline)
        with pytest.raises(holdfast.AcquireTimeout):
            client.lock("a").acquire(timeout=TIMEOUT)
    assert acquire_time.last_look(TIMEOUT, deadline) <= sent[-1] < deadline


def test_engine_that_does_not_answer_the_last_look_is_unreachable(url: str) -> None:
    with holdfast.connect(url) as client:
        sent = fail_after(client, acquire_time.last_look(TIMEOUT, clock.now() + TIMEOUT))
        began = clock.now()
        with pytest.raises(holdfast.EngineUnavailable):
            client.lock("a").acquire(timeout=TIMEOUT)
    assert clock.now() - began >= TIMEOUT - 0.1
    assert len(sent) > 1


@pytest.mark.parametrize("timeout, ahead", [(0.1, 0.025), (0.4, 0.1), (1.0, 0.25), (60.0, 0.25)])
def test_last_look_leaves_a_quarter_of_the_time_or_a_quarter_of_a_second(timeout: float, ahead: float) -> None:
    assert acquire_time.last_look(timeout, 100.0) == pytest.approx(100.0 - ahead)


def test_last_look_has_all_that_is_left_and_others_have_half_of_it() -> None:
    deadline = 100.0
    assert acquire_time.request_timeout(5.0, 4.0, deadline, 96.0) == pytest.approx(2.0)
    assert acquire_time.request_timeout(5.0, 4.0, deadline, 99.75) == pytest.approx(0.25 + 0.05)
    assert acquire_time.request_timeout(5.0, 4.0, deadline, 101.0) == pytest.approx(0.05)
    assert acquire_time.request_timeout(0.1, 4.0, deadline, 99.75) == pytest.approx(0.1)


def test_lock_that_is_released_after_the_last_look_is_still_acquired() -> None:
    """A waiter is woken at any moment before its deadline."""
    url = f"memory:{uuid.uuid4().hex}"
    with holdfast.connect(url) as holder, holdfast.connect(url) as client:
        lease = holder.lock("a").acquire()
        core: Any = client._open()
        deadline = clock.now() + TIMEOUT
        contender, looks = core.session.contender, acquire_time.last_look(TIMEOUT, deadline)

        def released_late(attempt: Any, timeout: float) -> Any:
            found = contender(attempt, timeout)
            wait = found.wait

            async def late(until: float) -> Any:
                if clock.now() >= looks and lease.held:
                    lease.release()
                return await wait(until)

            found.wait = late
            return found

        core.session.contender = released_late
        with client.lock("a").acquire(timeout=TIMEOUT) as acquired:
            assert acquired.held
        assert looks <= acquired._hold.since
