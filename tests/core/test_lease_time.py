"""Lease arithmetic: the deadline is before the engine's expiry, whatever the ttl."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast._config.durations import MAX_TTL, MIN_TTL
from holdfast._core import lease_time
from holdfast.engines.clock_margin import clock_margin

ttls = st.floats(MIN_TTL, MAX_TTL)
times = st.floats(0, 1e9)  # seconds since boot: thirty years


@given(times, ttls)
def test_the_deadline_is_before_the_engine_may_grant_the_lock_again(sent: float, ttl: float) -> None:
    """The engine counts from when the request arrives, which is not before it was sent."""
    assert sent < lease_time.deadline(sent, ttl) < sent + ttl


@given(ttls)
def test_the_margin_is_a_hundredth_but_not_below_five_milliseconds(ttl: float) -> None:
    margin = clock_margin(ttl)
    assert margin >= 0.005
    assert margin >= ttl * 0.01
    assert margin in (0.005, ttl * 0.01)


@given(times, times, ttls)
def test_a_later_request_never_has_an_earlier_deadline(one: float, two: float, ttl: float) -> None:
    assert (lease_time.deadline(one, ttl) <= lease_time.deadline(two, ttl)) or one > two


@given(times, ttls)
def test_two_renewals_may_fail_before_the_deadline(sent: float, ttl: float) -> None:
    first = lease_time.renew_at(sent, ttl)
    second = lease_time.renew_at(first, ttl)
    assert sent < first < second < lease_time.deadline(sent, ttl)


@given(times, ttls, st.floats(-10, MAX_TTL))
def test_a_failed_renewal_is_tried_again_before_the_end_and_not_in_the_past(
    now: float, ttl: float, left: float
) -> None:
    again = lease_time.retry_at(now, ttl, now + left)
    assert now <= again
    assert again <= max(now, now + left)


@given(times, ttls)
def test_retries_do_not_spin(now: float, ttl: float) -> None:
    assert lease_time.retry_at(now, ttl, now + MAX_TTL) - now >= 0.019


@given(st.floats(0.001, 60), ttls)
def test_no_request_takes_longer_than_a_third_of_the_lease(configured: float, ttl: float) -> None:
    timeout = lease_time.request_timeout(configured, ttl)
    assert timeout <= configured
    assert timeout <= ttl / 3
    assert timeout in (configured, ttl / 3)
