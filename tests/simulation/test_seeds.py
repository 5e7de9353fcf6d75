"""The shipped core and Redis engine in hundreds of worlds with every kind of fault: no invariant is broken."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest

from holdfast.engines.redis.keeper import RedisKeeper
from tests.simulation.determinism import deterministic
from tests.simulation.mutants import MUTANTS
from tests.simulation.runner import SeedFailed, first_noticed, run_seeds
from tests.simulation.world.single import World
from tests.support.soak import soak

#: SIM_SEEDS=100000 for a run of several hours.
SEEDS = int(os.environ.get("SIM_SEEDS", "150"))


@pytest.mark.slow
@pytest.mark.timeout(600 + 30 * SEEDS)
@pytest.mark.parametrize("seeds", [SEEDS, soak(20 * SEEDS, reason="finds combinations of faults that are rare")])
def test_no_seed_breaks_an_invariant(seeds: int) -> None:
    summary = run_seeds(range(seeds))
    print(summary)
    # The run is conclusive: there were grants, additions, and every kind of fault.
    assert summary.grants > 10 * seeds
    assert summary.additions > 5 * seeds
    assert {"crash", "cut", "delete", "flush", "partition", "pause", "repeat_late", "restart", "stall"} <= set(
        summary.faults
    )


@pytest.mark.timeout(600 + 30 * SEEDS)
@pytest.mark.parametrize("seeds", [SEEDS // 6, soak(5 * SEEDS, reason="finds combinations of faults that are rare")])
def test_no_seed_breaks_an_invariant_if_every_request_has_an_attempt(
    seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where an observer is, or the engine cannot be asked directly."""
    monkeypatch.setattr("holdfast._core.core._direct", lambda session: None)
    assert run_seeds(range(seeds)).grants > 6 * seeds


#: For each mutant: the invariants that must detect it, and a seed that does, which is tried first. The same bug may
#: break several invariants.
NOTICED: dict[str, tuple[set[str], int]] = {
    "acquire-not-idempotent": ({"I4"}, 0),
    "break-ignores-the-token": ({"I2"}, 35),
    "deadline-from-the-reply": ({"I1", "I4"}, 0),
    "no-fence": ({"I3"}, 5),
    "no-margin": ({"I1", "I4"}, 168),
    "no-tombstone": ({"I4"}, 6),
    "nothing-is-withdrawn": ({"I8"}, 1),
    "release-without-owner-check": ({"I2"}, 0),
    "renew-recreates": ({"I13"}, 2),
    "renew-without-owner-check": ({"I7", "I13"}, 0),
    "slots-are-not-repaired": ({"I6"}, 915),
    "store-only-guard": ({"I3"}, 5),
    "token-without-time": ({"I5"}, 22),
    "wake-without-re-poll": ({"I6", "I10"}, 0),
}


def test_every_mutant_has_expected_violations() -> None:
    assert set(NOTICED) == set(MUTANTS)


@pytest.mark.parametrize("name", sorted(NOTICED))
@pytest.mark.timeout(600)
def test_mutant_is_caught_within_a_thousand_seeds(name: str) -> None:
    invariants, hint = NOTICED[name]
    failure = first_noticed(itertools.chain([hint], range(1000)), MUTANTS[name], invariants)
    assert failure is not None, f"{name} survived"
    print(failure)


def trace_of(seed: int) -> list[str]:
    with deterministic(seed):
        world = World(seed)
        try:
            world.run()
        finally:
            world.close()
    return world.history.lines()


@pytest.mark.parametrize("seed", [3, 14, 159])
def test_seed_replays_exactly(seed: int) -> None:
    first = trace_of(seed)
    assert len(first) > 50
    assert trace_of(seed) == first


def test_failing_seed_is_printed_and_replays_in_another_process() -> None:
    mutant = "release-without-owner-check"
    invariants, _ = NOTICED[mutant]
    failure = first_noticed(range(100), MUTANTS[mutant], invariants)
    assert failure is not None
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(failure.seed), "--mutant", mutant]
    # With another hash seed: the order of sets of strings must not matter.
    again = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONHASHSEED": "5"}
    )
    assert again.returncode == 1
    for line in failure.trace:
        assert line.rstrip() in again.stdout
    assert str(failure) in again.stdout
    assert f"--seed {failure.seed} --mutant {mutant}" in again.stdout


def test_error_logged_by_the_library_fails_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: RedisKeeper, *args: object) -> None:
        raise ZeroDivisionError("a bug in the engine")

    monkeypatch.setattr(RedisKeeper, "renew", broken)
    with pytest.raises(SeedFailed, match="a bug in the engine") as failed:
        run_seeds(range(20))
    assert failed.value.trace
