"""The rungs on one Redis: each breaks at its own fault every time and meets the others as promised."""

from __future__ import annotations

import pytest

from holdfast.cli.ladder.runner import Ladder
from tests.cli.ladder.repeating import FEW, MANY, assert_all_as_promised, decisive, others, repeated
from tests.support.soak import soak

pytestmark = pytest.mark.needs_redis


@pytest.mark.parametrize("number, fault", decisive(1, 2, 3, 4, 5, 6))
@pytest.mark.parametrize("runs", [FEW, soak(MANY, reason="a fault that breaks it nearly always")])
def test_rung_breaks_at_its_fault_in_every_run(ladder: Ladder, number: int, fault: str, runs: int) -> None:
    outcomes = repeated(ladder, number, fault, runs)
    assert len(outcomes) == runs
    assert all(outcome.kind != "ok" for outcome in outcomes)
    assert_all_as_promised(number, fault, outcomes)


@pytest.mark.parametrize("number, fault", others(1, 2, 3, 4, 5, 6))
def test_rung_meets_the_other_faults_as_promised(ladder: Ladder, number: int, fault: str) -> None:
    assert_all_as_promised(number, fault, repeated(ladder, number, fault, 1))


def test_lock_being_acquired_by_another_client_is_not_reported_as_never_expiring(ladder: Ladder) -> None:
    """Regression: rung 2 has no expiry between its two commands, and the ladder read the key at that moment."""
    assert_all_as_promised(2, "check-then-delete", repeated(ladder, 2, "check-then-delete", MANY))
