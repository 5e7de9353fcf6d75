"""Shipped Redlock and core in many worlds of three or five servers: no invariant is broken."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.simulation.determinism import deterministic
from tests.simulation.redlock.grants import GrantsWorld
from tests.simulation.redlock.mutants import REDLOCK_MUTANTS
from tests.simulation.redlock.world import RedlockWorld
from tests.simulation.runner import MakeWorld, first_noticed, run_seeds
from tests.simulation.world.node import Node
from tests.support.soak import soak

#: SIM_SEEDS=100000 for a run of several hours. Five servers take about five times as long as one.
SEEDS = int(os.environ.get("SIM_SEEDS", "150")) // 5


@pytest.mark.slow
@pytest.mark.timeout(600 + 30 * SEEDS)
@pytest.mark.parametrize("seeds", [SEEDS, soak(20 * SEEDS, reason="finds combinations of faults that are rare")])
def test_no_seed_breaks_an_invariant(seeds: int) -> None:
    summary = run_seeds(range(seeds), make=RedlockWorld)
    print(summary)
    assert summary.grants > 10 * seeds
    assert summary.additions > 5 * seeds
    # Rare faults happened too: servers down, with and without loss of data; and faults outside the model.
    assert {"clock_step", "crash", "delete", "outage", "partition", "pause", "repeat_late", "restart", "stall"} <= set(
        summary.faults
    )


class StallingWorld(RedlockWorld):
    """Answers are late so often that one server may answer a holder after its lease has expired on the others."""

    def make_nodes(self) -> list[Node]:
        nodes = super().make_nodes()
        for node in nodes:
            node.faults.plan = replace(node.faults.plan, stall=0.2)
        return nodes


#: For each mutant: the kind of world, the invariants that must detect it, and a seed that does, which is tried first.
NOTICED: dict[str, tuple[MakeWorld, set[str], int]] = {
    "deadline-from-the-reply": (RedlockWorld, {"I1", "I4"}, 2),
    "join-without-tombstone-check": (RedlockWorld, {"I4"}, 119),
    "no-fence": (RedlockWorld, {"I3"}, 7),
    "no-phase-2": (GrantsWorld, {"I5"}, 5),
    "no-take-back": (RedlockWorld, {"I8"}, 0),
    "plain-incr": (GrantsWorld, {"I5"}, 0),
    "renewal-by-any-server": (StallingWorld, {"I1"}, 38),
}


def test_every_mutant_has_expected_violations() -> None:
    assert set(NOTICED) == set(REDLOCK_MUTANTS)


@pytest.mark.parametrize("name", sorted(NOTICED))
@pytest.mark.timeout(600)
def test_mutant_is_caught_within_a_thousand_seeds(name: str) -> None:
    make, invariants, hint = NOTICED[name]
    failure = first_noticed(itertools.chain([hint], range(1000)), REDLOCK_MUTANTS[name], invariants, make)
    assert failure is not None, f"{name} survived"
    print(failure)


def trace_of(seed: int) -> list[str]:
    with deterministic(seed):
        world = RedlockWorld(seed)
        try:
            world.run()
        finally:
            world.close()
    return world.history.lines()


@pytest.mark.parametrize("seed", [2, 71])
def test_seed_replays_exactly(seed: int) -> None:
    first = trace_of(seed)
    assert len(first) > 50
    assert trace_of(seed) == first


def test_failing_seed_replays_in_another_process() -> None:
    failure = first_noticed(range(100), REDLOCK_MUTANTS["no-take-back"], {"I8"}, RedlockWorld)
    assert failure is not None
    command = [sys.executable, "-m", "tests.simulation", "--redlock", "--seed", str(failure.seed)]
    again = subprocess.run(
        [*command, "--mutant", "no-take-back"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONHASHSEED": "5"},
    )
    assert again.returncode == 1
    for line in failure.trace:
        assert line.rstrip() in again.stdout
    assert f"--redlock --seed {failure.seed} --mutant no-take-back" in again.stdout
