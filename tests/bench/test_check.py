"""The counts of ``make bench-check``: the same in each run, and a growth of more than 10 % is seen."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Final

import pytest

import bench.check
import holdfast
from bench.check.comparison import Difference, compare
from bench.check.counting import executed

RECORDED: Final = Path(bench.check.__file__).parent / "recorded.json"


def _work(times: int) -> int:
    return sum(_square(number) for number in range(times))


def _lengths(times: int) -> list[int]:
    return [len("a") for _ in range(times)]


def _square(number: int) -> int:
    return number * number


def test_counts_are_the_same_in_each_run_and_grow_with_the_work() -> None:
    ten, again, twenty = (executed(partial(_work, times), 5) for times in (10, 10, 20))
    assert ten == again
    assert twenty.calls - ten.calls == 20  # the function and the generator, ten times more
    assert twenty.instructions > 1.5 * ten.instructions


def test_only_calls_of_c_functions_are_counted_as_such() -> None:
    one, three = (executed(partial(_lengths, times), 5) for times in (1, 3))
    assert three.c_calls - one.c_calls == 2


def test_counts_of_a_lock_are_the_same_in_each_run() -> None:
    with holdfast.connect("memory:counted") as locks:
        lock = locks.lock("name")
        first, second = (executed(lambda: lock.acquire().release(), 15) for _ in range(2))
    assert first == second
    assert first.instructions > 100


@pytest.mark.parametrize(
    "recorded, counted, grown, shrunk",
    [
        (100, 110, False, False),
        (100, 111, True, False),
        (100, 90, False, False),
        (100, 89, False, True),
        (0, 0, False, False),
        (0, 1, True, False),
        (None, 5, True, False),
        (5, None, True, False),
    ],
)
def test_growth_beyond_the_tolerance_is_seen(
    recorded: float | None, counted: float | None, grown: bool, shrunk: bool
) -> None:
    difference = Difference("pair", "calls", recorded, counted)
    assert (difference.grown, difference.shrunk) == (grown, shrunk)
    assert str(difference).startswith("pair: calls")


def test_every_figure_of_both_sides_is_compared() -> None:
    found = compare({"a": {"calls": 1}, "gone": {"calls": 2}}, {"a": {"calls": 1, "commands": 3}, "new": {"calls": 4}})
    assert {(one.operation, one.count, one.recorded, one.counted) for one in found} == {
        ("a", "calls", 1, 1),
        ("a", "commands", None, 3),
        ("new", "calls", None, 4),
        ("gone", "calls", 2, None),
    }


def test_figures_are_recorded_for_the_python_that_ci_compares_on() -> None:
    recorded = json.loads(RECORDED.read_text("utf-8"))
    assert recorded["cpython-3.11"]["redis: pair"]["requests"] == 2
