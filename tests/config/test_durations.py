"""Durations, ttl and timeout: accepted numbers, texts and timedeltas, and refusals."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast._config.durations import check_timeout, check_ttl, parse_duration
from holdfast.fencing import MemoryFence

seconds = st.floats(min_value=0, max_value=1e12, allow_nan=False)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("30", 30.0),
        ("0.5", 0.5),
        (".5", 0.5),
        ("2.", 2.0),
        ("30s", 30.0),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("2d", 172800.0),
        ("500ms", 0.5),
        (" 1.5 h ", 5400.0),
        ("0", 0.0),
    ],
)
def test_text_with_a_unit_becomes_seconds(text: str, expected: float) -> None:
    assert parse_duration(text) == pytest.approx(expected)


@given(seconds)
def test_numbers_are_seconds(value: float) -> None:
    assert parse_duration(value) == value
    assert parse_duration(int(value)) == int(value)


@given(st.timedeltas(min_value=timedelta(0)))
def test_timedelta_becomes_seconds(value: timedelta) -> None:
    assert parse_duration(value) == value.total_seconds()


@given(st.decimals(min_value=0, max_value=10**9, places=3), st.sampled_from(["", "ms", "s", "m", "h", "d"]))
def test_number_is_multiplied_by_its_unit(number: object, unit: str) -> None:
    factor = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}[unit]
    assert parse_duration(f"{number}{unit}") == pytest.approx(float(str(number)) * factor)


@pytest.mark.parametrize(
    "bad",
    [
        *(True, False, math.nan, math.inf, -math.inf, -1, -0.001, timedelta(seconds=-1), 10**400),
        *("", "s", "-1", "+1", "1e3", "nan", "inf", "1 2", "5 minutes", "1_000", "١", "1h30m", "9" * 400, "1S"),
    ],
)
def test_value_that_is_no_duration_raises_value_error(bad: object) -> None:
    with pytest.raises(ValueError, match="wait_time"):
        parse_duration(bad, what="wait_time")


@pytest.mark.parametrize("bad", [None, b"30", [], object(), 1j])
def test_type_that_is_no_duration_raises_type_error(bad: object) -> None:
    with pytest.raises(TypeError, match="duration"):
        parse_duration(bad)


@given(st.text())
def test_any_text_is_a_finite_duration_or_a_value_error(text: str) -> None:
    try:
        parsed = parse_duration(text)
    except ValueError:
        return
    assert math.isfinite(parsed)
    assert parsed >= 0


@pytest.mark.parametrize("ttl, expected", [(0.1, 0.1), ("100ms", 0.1), (30, 30.0), ("7d", 604800.0)])
def test_ttl_within_bounds_is_accepted(ttl: object, expected: float) -> None:
    assert check_ttl(ttl) == pytest.approx(expected)


@pytest.mark.parametrize("ttl", [0, 0.099, "99ms", 604800.1, "8d", math.nan, True, -1])
def test_ttl_out_of_bounds_is_refused(ttl: object) -> None:
    with pytest.raises(ValueError, match="ttl"):
        check_ttl(ttl)


@pytest.mark.parametrize(
    "timeout, expected",
    [(None, None), (0, 0.0), (2.5, 2.5), (timedelta(minutes=1), 60.0), ("5", 5.0), ("500ms", 0.5), ("0", 0.0)],
)
def test_timeout_is_seconds_or_none(timeout: object, expected: float | None) -> None:
    assert check_timeout(timeout) == expected


@pytest.mark.parametrize("timeout", [-1, -0.1, math.nan, True, False, math.inf, -math.inf, "", "soon", "-1s"])
def test_wrong_timeout_raises_value_error(timeout: object) -> None:
    with pytest.raises(ValueError, match="timeout"):
        check_timeout(timeout)


@pytest.mark.parametrize("timeout", [b"5", [], object()])
def test_timeout_of_a_wrong_type_raises_type_error(timeout: object) -> None:
    with pytest.raises(TypeError, match="timeout"):
        check_timeout(timeout)


@pytest.mark.parametrize("one, two", [(1.0, 2.0), ("1s", "2000ms"), (timedelta(seconds=1), timedelta(seconds=2))])
def test_every_duration_argument_accepts_number_text_and_timedelta(one: Any, two: Any) -> None:
    with holdfast.connect("memory:durations", ttl=one, request_timeout=one, unavailable_after=two) as locks:
        with locks.lock("a") as lease:
            assert lease.ttl == 1.0
            lease.renew(ttl=two)
            assert lease.ttl == 2.0
            with MemoryFence().guard("r", lease, timeout=one):
                pass
        with locks.lock("b", ttl=two, timeout=one, max_hold=two) as lease:
            assert lease.ttl == 2.0
        locks.lock("c").acquire(timeout=one).release()
        held = locks.lock("c").try_acquire(timeout=one)
        assert held is not None
        held.release()


@pytest.mark.parametrize("one, two", [("1s", "2000ms"), (timedelta(seconds=1), timedelta(seconds=2))])
def test_async_durations_may_be_a_number_a_text_or_a_timedelta(one: Any, two: Any) -> None:
    async def use() -> None:
        async with holdfast.aio.connect("memory:durations", ttl=one) as locks:
            async with locks.lock("a", ttl=two, timeout=one, max_hold=two) as lease:
                assert lease.ttl == 2.0
            lease = await locks.lock("c").acquire(timeout=one)
            await lease.renew(ttl=two)
            assert lease.ttl == 2.0
            await lease.release()

    asyncio.run(use())
