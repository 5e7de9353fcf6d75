"""Read-write locks and semaphores, by the shipped core and scripts, in many worlds: no invariant is broken."""

from __future__ import annotations

import itertools
import os

import pytest

from holdfast.engines.base import Engine
from tests.simulation.client.engine import SimEngine
from tests.simulation.determinism import deterministic
from tests.simulation.runner import first_noticed, run_seeds
from tests.simulation.sharing.mutants import SHARING_MUTANTS
from tests.simulation.sharing.world import SharingWorld
from tests.simulation.world.faults import FaultPlan
from tests.support.soak import soak

#: SIM_SEEDS=100000 for a run of several hours.
SEEDS = int(os.environ.get("SIM_SEEDS", "150")) // 3


@pytest.mark.slow
@pytest.mark.timeout(600 + 30 * SEEDS)
@pytest.mark.parametrize("seeds", [SEEDS, soak(60 * SEEDS, reason="finds combinations of faults that are rare")])
def test_no_seed_breaks_an_invariant(seeds: int) -> None:
    summary = run_seeds(range(seeds), make=SharingWorld)
    print(summary)
    assert summary.grants > 20 * seeds
    assert {"crash", "cut", "delete", "flush", "partition", "pause", "repeat_late", "restart", "stall"} <= set(
        summary.faults
    )


class UntrackedWorld(SharingWorld):
    """No faults, one semaphore, and clients that cannot track keys: every wake-up is a message."""

    def draw_plan(self) -> FaultPlan:
        return FaultPlan()

    def draw_names(self) -> list[str]:
        return ["sem"]

    def make_engine(self) -> Engine:
        return SimEngine(self.nodes[0].network, multiplexed=True, tracking=False)


#: For each mutant: the invariants that must detect it, and a seed that does, which is tried first.
NOTICED: dict[str, tuple[set[str], int]] = {
    "evicted-count-is-made-anew": ({"I2"}, 90),
    "half-permits": ({"I4"}, 1),
    "impossible-claim-waits": ({"I6"}, 1),
    "large-claim-starves": ({"I11"}, 1),
    "no-tombstone": ({"I4"}, 0),
    "one-wakeup-for-two-places": ({"I6"}, 3),
    "readers-overtake-a-writer": ({"I11"}, 0),
    "release-counts-what-was-not-out": ({"I2"}, 1),
    "release-without-owner-check": ({"I2"}, 0),
    "zombie-write": ({"I8"}, 2),
}


def test_every_mutant_has_expected_violations() -> None:
    assert set(NOTICED) == set(SHARING_MUTANTS)


@pytest.mark.parametrize("name", sorted(NOTICED))
@pytest.mark.timeout(600)
def test_mutant_is_caught_within_a_thousand_seeds(name: str) -> None:
    invariants, hint = NOTICED[name]
    make = UntrackedWorld if name == "one-wakeup-for-two-places" else SharingWorld
    failure = first_noticed(itertools.chain([hint], range(1000)), SHARING_MUTANTS[name], invariants, make)
    assert failure is not None, f"{name} survived"
    print(failure)


def test_seed_replays_exactly() -> None:
    traces = []
    for _ in range(2):
        with deterministic(13):
            world = SharingWorld(13)
            try:
                world.run()
            finally:
                world.close()
        traces.append(world.history.lines())
    assert len(traces[0]) > 50
    assert traces[0] == traces[1]
