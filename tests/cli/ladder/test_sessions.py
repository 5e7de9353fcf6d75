"""The ZooKeeper rungs: each breaks at its own fault every time and meets the others as promised."""

from __future__ import annotations

import pytest

from holdfast.cli.ladder.runner import Ladder
from tests.cli.ladder.repeating import assert_all_as_promised, decisive, others, repeated

pytestmark = pytest.mark.needs_zookeeper


@pytest.mark.parametrize("number, fault", decisive(8))
def test_rung_breaks_at_its_fault_in_ten_of_ten_runs(ladder: Ladder, number: int, fault: str) -> None:
    outcomes = repeated(ladder, number, fault)
    assert len(outcomes) == 10
    assert all(outcome.kind != "ok" for outcome in outcomes)
    assert_all_as_promised(number, fault, outcomes)


@pytest.mark.parametrize("number, fault", others(8))
def test_rung_meets_the_other_faults_as_promised(ladder: Ladder, number: int, fault: str) -> None:
    assert_all_as_promised(number, fault, repeated(ladder, number, fault, runs=1))
