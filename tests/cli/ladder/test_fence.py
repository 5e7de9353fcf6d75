"""The last rung: no fault breaks it in any run, and the fence refuses the late writers."""

from __future__ import annotations

import pytest

from holdfast.cli.ladder.runner import Ladder
from tests.cli.ladder.repeating import FEW, MANY, assert_all_as_promised, others, repeated
from tests.support.soak import soak

pytestmark = pytest.mark.needs_redis

#: The faults after which a former holder still writes.
LATE_WRITERS = ("freeze", "failover", "redlock-pause")


@pytest.mark.parametrize("number, fault", others(9))
@pytest.mark.parametrize("runs", [FEW, soak(MANY, reason="a fault that breaks it now and then")])
def test_no_fault_costs_an_update_in_any_run(ladder: Ladder, number: int, fault: str, runs: int) -> None:
    outcomes = repeated(ladder, number, fault, runs)
    assert len(outcomes) == runs
    assert_all_as_promised(number, fault, outcomes)
    assert all(outcome.updates > 0 for outcome in outcomes)
    assert {outcome.refused for outcome in outcomes} == {int(fault in LATE_WRITERS)}
