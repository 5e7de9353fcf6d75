"""The shipped hand-over in worlds where much of it goes wrong: no invariant is broken, and every mutant is caught."""

from __future__ import annotations

import itertools
import os
from typing import Final

import pytest

from tests.simulation.handing_over.mutants import HAND_OVER_MUTANTS
from tests.simulation.handing_over.world import HandOverWorld
from tests.simulation.runner import MakeWorld, first_noticed, run_seeds
from tests.simulation.world.single import World
from tests.support.soak import soak

SEEDS: Final = int(os.environ.get("SIM_SEEDS", "150")) // 3

#: For each mutant: the kind of world, the invariants that must detect it, and a seed that does, which is tried first.
NOTICED: Final[dict[str, tuple[MakeWorld, set[str], int]]] = {
    "any-answer-confirms": (HandOverWorld, {"I1", "I4"}, 11),
    "deadline-from-the-push": (HandOverWorld, {"I1", "I4"}, 5),
    "dropped-head-keeps-the-lock": (HandOverWorld, {"I1", "I2", "I4"}, 13),
    "hand-over-to-a-waiter-that-has-left": (HandOverWorld, {"I4"}, 0),
    "hand-over-without-owner-check": (HandOverWorld, {"I2"}, 0),
    "handed-over-for-the-whole-ttl": (HandOverWorld, {"I1", "I4"}, 16),
    # A lock that stays behind is noticed where what is handed over lasts for longer than a withdrawal may take.
    "leaving-gives-nothing-back": (World, {"I8"}, 32),
    "push-to-any-owner": (HandOverWorld, {"I1", "I4"}, 31),
}


@pytest.mark.timeout(600 + 30 * SEEDS)
@pytest.mark.parametrize("seeds", [SEEDS, soak(20 * SEEDS, reason="finds combinations of faults that are rare")])
def test_no_seed_breaks_an_invariant(seeds: int) -> None:
    assert run_seeds(range(seeds), make=HandOverWorld).grants > 10 * seeds


def test_every_mutant_has_expected_violations() -> None:
    assert set(NOTICED) == set(HAND_OVER_MUTANTS)


@pytest.mark.parametrize("name", sorted(NOTICED))
@pytest.mark.timeout(600)
def test_mutant_is_caught_within_a_thousand_seeds(name: str) -> None:
    make, invariants, hint = NOTICED[name]
    failure = first_noticed(itertools.chain([hint], range(1000)), HAND_OVER_MUTANTS[name], invariants, make)
    assert failure is not None, f"{name} survived"
    print(failure)
