"""A hundred thousand Redlock grants by servers that lose data, repeat requests and disagree: tokens stay in order."""

from __future__ import annotations

import os

import pytest

from tests.simulation.redlock.grants import GRANTS, GrantsWorld
from tests.simulation.runner import run_seeds

#: 20 seeds of 2000 grants; SIM_SEEDS=75000 for ten million.
SEEDS = int(os.environ.get("SIM_SEEDS", "300")) // 15
PARTS = 4


@pytest.mark.slow
@pytest.mark.timeout(600 + SEEDS)
@pytest.mark.parametrize("part", range(PARTS))
def test_tokens_are_strictly_ordered(part: int) -> None:
    seeds = range(part, SEEDS, PARTS)
    summary = run_seeds(seeds, make=GrantsWorld)
    attempts, second_phases = summary.faults.pop("attempts"), summary.faults.pop("second_phases")
    print(f"{summary}\n{attempts} attempts; {second_phases} grants needed the second phase")
    assert summary.grants >= GRANTS * len(seeds)
    # The run was hard enough: votes were split, counters disagreed, messages were lost and repeated late.
    assert attempts > 1.1 * summary.grants
    assert second_phases > 0
    assert {"lose_reply", "lose_request", "repeat_late", "stall"} <= set(summary.faults)
