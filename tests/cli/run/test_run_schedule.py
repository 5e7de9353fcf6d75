"""When a command is stopped because its lock ends. Pure decisions."""

from __future__ import annotations

import pytest

from holdfast.cli.run import schedule
from holdfast.cli.run.schedule import Plan, Step

LEASE = schedule.until(deadline=130.0, grace=5.0)


@pytest.mark.parametrize(
    "now, step, again",
    [
        (100.0, Step.NOTHING, 125.0),
        (124.9, Step.NOTHING, 125.0),
        (125.0, Step.TERM, 129.8),
        (129.7, Step.TERM, 129.8),
        (129.8, Step.KILL, 129.8),
        (5000.0, Step.KILL, 5000.0),  # after a freeze of the process that decides
    ],
)
def test_term_precedes_the_deadline_by_the_grace_and_kill_by_a_margin(now: float, step: Step, again: float) -> None:
    decided, when = schedule.decide(LEASE, now)
    assert decided is step
    assert when == pytest.approx(again)


def test_renewal_postpones_term_and_kill() -> None:
    assert schedule.renewed(LEASE, 140.0, 5.0, Step.NOTHING) == Plan(135.0, 139.8)


def test_renewal_after_term_changes_nothing() -> None:
    assert schedule.renewed(LEASE, 140.0, 5.0, Step.TERM) == LEASE


@pytest.mark.parametrize("reason", ["broken", "stolen", "session"])
def test_lost_lock_sends_term_immediately_and_kill_a_second_later(reason: str) -> None:
    assert schedule.lost(LEASE, reason, 110.0) == Plan(110.0, 111.0, final=True)


@pytest.mark.parametrize("reason", ["expired", "unreachable", "max_hold", "closed", "forked"])
def test_passed_deadline_sends_kill_immediately(reason: str) -> None:
    assert schedule.decide(schedule.lost(LEASE, reason, 110.0), 110.0)[0] is Step.KILL


def test_loss_does_not_delay_an_earlier_kill() -> None:
    assert schedule.lost(LEASE, "broken", 129.5).kill_at == LEASE.kill_at


def test_final_plan_is_never_postponed() -> None:
    final = schedule.lost(LEASE, "broken", 110.0)
    assert schedule.renewed(final, 999.0, 5.0, Step.NOTHING) == final


def test_leftover_descendants_get_term_immediately_and_kill_after_the_grace() -> None:
    assert schedule.ended(LEASE, 5.0, 110.0) == Plan(110.0, 115.0, final=True)
    assert schedule.ended(LEASE, 5.0, 127.0).kill_at == LEASE.kill_at


@pytest.mark.parametrize(
    "wanted, lease, grace", [(None, 29.7, 5.0), (None, 3.0, 1.0), (2.0, 29.7, 2.0), (10.0, 6.0, 2.0), (0.0, 30.0, 0.0)]
)
def test_grace_is_at_most_a_third_of_the_lease(wanted: float | None, lease: float, grace: float) -> None:
    assert schedule.fitting_grace(wanted, lease) == grace
