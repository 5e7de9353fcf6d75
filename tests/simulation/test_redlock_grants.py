"""Thousands of Redlock grants by servers that lose data, repeat requests and disagree: tokens stay in order."""

from __future__ import annotations

import os

import pytest

from tests.simulation.redlock.grants import GRANTS, GrantsWorld
from tests.simulation.runner import run_seeds
from tests.support.soak import soak

#: 6 seeds of 2000 grants; SIM_SEEDS=125000 for ten million.
SEEDS = int(os.environ.get("SIM_SEEDS", "150")) // 25
PARTS = 2


@pytest.mark.slow
@pytest.mark.timeout(600 + 30 * SEEDS)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("count", [SEEDS, soak(10 * SEEDS, reason="a hundred thousand grants meet rare faults too")])
def test_tokens_are_strictly_ordered(count: int, part: int) -> None:
    seeds = range(part, count, PARTS)
    summary = run_seeds(seeds, make=GrantsWorld)
    attempts, second_phases = summary.faults.pop("attempts"), summary.faults.pop("second_phases")
    print(f"{summary}\n{attempts} attempts; {second_phases} grants needed the second phase")
    assert summary.grants >= GRANTS * len(seeds)
    # The run was hard enough: votes were split, counters disagreed, messages were lost and repeated late.
    assert attempts > 1.1 * summary.grants
    assert second_phases > 0
    assert {"lose_reply", "lose_request", "repeat_late", "stall"} <= set(summary.faults)
