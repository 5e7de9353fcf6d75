"""The shipped queue inside a process, with callers that overtake each other, and every kind of fault: no invariant is
broken, and every mutant is caught."""

from __future__ import annotations

import itertools
import os
from typing import Final

import pytest

from tests.simulation.local.mutants import LOCAL_MUTANTS
from tests.simulation.local.world import LocalWorld
from tests.simulation.runner import first_noticed, run_seeds
from tests.support.soak import soak

SEEDS: Final = int(os.environ.get("SIM_SEEDS", "150")) // 3

#: For each mutant: the invariants that must detect it, and a seed that does, which is tried first.
NOTICED: Final[dict[str, tuple[set[str], int]]] = {
    "taken-back-and-accepted": ({"I1"}, 1),
    "taken-back-without-a-place": ({"I6"}, 0),
    "taken-back-without-a-token": ({"I5"}, 0),
}


@pytest.mark.timeout(600 + 30 * SEEDS)
@pytest.mark.parametrize("seeds", [SEEDS, soak(20 * SEEDS, reason="finds combinations of faults that are rare")])
def test_no_seed_breaks_an_invariant(seeds: int) -> None:
    summary = run_seeds(range(seeds), make=LocalWorld)
    print(summary)
    assert summary.grants > 10 * seeds
    assert summary.faults["taken back"] > 10 * seeds, "the run is conclusive"


def test_every_mutant_has_expected_violations() -> None:
    assert set(NOTICED) == set(LOCAL_MUTANTS)


@pytest.mark.parametrize("name", sorted(NOTICED))
@pytest.mark.timeout(600)
def test_mutant_is_caught_within_a_thousand_seeds(name: str) -> None:
    invariants, hint = NOTICED[name]
    failure = first_noticed(itertools.chain([hint], range(1000)), LOCAL_MUTANTS[name], invariants, LocalWorld)
    assert failure is not None, f"{name} survived"
    print(failure)
