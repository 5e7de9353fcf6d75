"""A bounded buffer by the shipped monitors and conditions, in worlds with dying waiters: no invariant is broken."""

from __future__ import annotations

import itertools
import os

import pytest

from tests.simulation.conditions.directed import DirectedWorld
from tests.simulation.conditions.mutants import CONDITION_MUTANTS
from tests.simulation.conditions.world import BufferWorld
from tests.simulation.runner import MakeWorld, first_noticed, run_seeds
from tests.simulation.world.faults import FaultPlan
from tests.support.soak import soak

#: SIM_SEEDS=100000 for a run of several hours.
SEEDS = int(os.environ.get("SIM_SEEDS", "150")) // 3


@pytest.mark.slow
@pytest.mark.timeout(600 + 30 * SEEDS)
@pytest.mark.parametrize(
    "seeds", [SEEDS, soak(20 * SEEDS, reason="a thousand schedules with waiters that die, at rare moments too")]
)
def test_every_notify_reaches_a_live_waiter_and_no_item_is_lost(seeds: int) -> None:
    summary = run_seeds(range(seeds), make=BufferWorld)
    print(summary)
    assert summary.grants > 20 * seeds
    assert {"crash", "cut", "delete", "partition", "pause", "repeat_late", "stall"} <= set(summary.faults)


@pytest.mark.timeout(600 + 30 * SEEDS)
@pytest.mark.parametrize("seeds", [SEEDS, soak(60 * SEEDS, reason="waiters that end at rarer moments of a notify")])
def test_a_waiter_that_ends_at_the_moment_of_its_notify_leaves_the_item_to_the_next_one(seeds: int) -> None:
    summary = run_seeds(range(seeds), make=DirectedWorld)
    print(summary)
    assert summary.grants > 2 * seeds


class RepeatingWorld(BufferWorld):
    """Many requests arrive again, late."""

    def draw_plan(self) -> FaultPlan:
        return FaultPlan(repeat_late=0.15)


class FreezingWorld(BufferWorld):
    """Processes are frozen between any two steps, often for longer than their leases."""

    def draw_plan(self) -> FaultPlan:
        return FaultPlan(pause_step=0.01, slow=0.1)


#: For each mutant: the kind of world, the invariants that must detect it, and a seed that does, which is tried first.
NOTICED: dict[str, tuple[MakeWorld, set[str], int]] = {
    "blind-cancel": (DirectedWorld, {"I6"}, 3),
    "blind-time-out": (DirectedWorld, {"I6"}, 7),
    "consumed-at-the-grant": (DirectedWorld, {"I6"}, 2),
    "exception-drops-the-entry": (BufferWorld, {"I6"}, 18),
    "late-store-is-accepted": (RepeatingWorld, {"I3"}, 44),
    "nothing-is-passed-on-while-waiting": (BufferWorld, {"I6"}, 44),
    "only-stores-raise-the-guard": (FreezingWorld, {"I3", "I4"}, 12),
    "presence-by-the-clients-clock": (BufferWorld, {"I6"}, 212),
    "refused-store-looks-released": (FreezingWorld, {"I3"}, 745),
    "registered-after-the-release": (BufferWorld, {"I6"}, 25),
    "wake-without-a-store": (BufferWorld, {"I6"}, 0),
}


def test_every_mutant_has_expected_violations() -> None:
    assert set(NOTICED) == set(CONDITION_MUTANTS)


@pytest.mark.parametrize("name", sorted(NOTICED))
@pytest.mark.timeout(600)
def test_mutant_is_caught_within_a_thousand_seeds(name: str) -> None:
    make, invariants, hint = NOTICED[name]
    failure = first_noticed(itertools.chain([hint], range(1000)), CONDITION_MUTANTS[name], invariants, make)
    assert failure is not None, f"{name} survived"
    print(failure)
