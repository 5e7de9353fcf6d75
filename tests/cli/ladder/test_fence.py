"""The last rung: no fault breaks it in ten of ten runs, and the fence refuses the late writers."""

from __future__ import annotations

import pytest

from holdfast.cli.ladder.runner import Ladder
from tests.cli.ladder.repeating import assert_all_as_promised, others, repeated

pytestmark = pytest.mark.needs_redis

#: The faults after which a former holder still writes.
LATE_WRITERS = ("freeze", "failover", "redlock-pause")


@pytest.mark.parametrize("number, fault", others(9))
def test_no_fault_costs_an_update_in_ten_of_ten_runs(ladder: Ladder, number: int, fault: str) -> None:
    outcomes = repeated(ladder, number, fault)
    assert len(outcomes) == 10
    assert_all_as_promised(number, fault, outcomes)
    assert all(outcome.updates > 0 for outcome in outcomes)
    assert {outcome.refused for outcome in outcomes} == {int(fault in LATE_WRITERS)}
