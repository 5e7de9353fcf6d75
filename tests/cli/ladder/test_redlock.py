"""The Redlock rungs: each breaks at its own fault every time and meets the others as promised."""

from __future__ import annotations

import pytest

from holdfast.cli.ladder.runner import Ladder
from tests.cli.ladder.repeating import FEW, MANY, assert_all_as_promised, decisive, others, repeated
from tests.support.soak import soak

pytestmark = pytest.mark.needs_redis


@pytest.mark.parametrize("number, fault", decisive(7))
@pytest.mark.parametrize("runs", [FEW, soak(MANY, reason="a fault that breaks it nearly always")])
def test_rung_breaks_at_its_fault_in_every_run(ladder: Ladder, number: int, fault: str, runs: int) -> None:
    outcomes = repeated(ladder, number, fault, runs)
    assert len(outcomes) == runs
    assert all(outcome.kind != "ok" for outcome in outcomes)
    assert_all_as_promised(number, fault, outcomes)


@pytest.mark.parametrize("number, fault", others(7))
def test_rung_meets_the_other_faults_as_promised(ladder: Ladder, number: int, fault: str) -> None:
    assert_all_as_promised(number, fault, repeated(ladder, number, fault, 1))
