"""Runs seeds, sums up their reports, and prints a failing seed so that it can be replayed."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from tests.simulation.checkers.history import Violation
from tests.simulation.determinism import deterministic
from tests.simulation.mutants import Mutant, no_mutant
from tests.simulation.world.base import BaseWorld, Report
from tests.simulation.world.single import World

MakeWorld = Callable[[int], BaseWorld]


class SeedFailed(AssertionError):
    """A seed broke an invariant. ``trace`` has all events of its run."""

    def __init__(self, seed: int, plan: str, cause: BaseException, trace: list[str]) -> None:
        kind = "" if isinstance(cause, Violation) else f"{type(cause).__name__}: "
        super().__init__(f"seed {seed}: {kind}{cause}\nfaults: {plan}")
        self.seed = seed
        self.cause = cause
        self.trace = trace


def run_seed(seed: int, mutant: Mutant = no_mutant, make: MakeWorld = World) -> Report:
    """One run; raises SeedFailed."""
    with deterministic(seed) as errors:
        world = make(seed)
        try:
            with mutant(world):
                report = world.run()
            if errors:
                raise Violation("bug", f"the library logged: {errors[0].getMessage()} {errors[0].exc_info}")
        except Exception as cause:
            raise SeedFailed(seed, world.plans(), cause, world.history.lines()) from cause
        finally:
            world.close()
    return report


@dataclass
class Summary:
    """The sum over many seeds."""

    seeds: int = 0
    seconds: float = 0.0
    grants: int = 0
    additions: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.seconds += report.seconds
        self.grants += report.grants
        self.additions += report.additions
        self.faults.update(report.faults)

    def __str__(self) -> str:
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        return (
            f"{self.seeds} seeds, {self.seconds / 3600:.2f} simulated hours, {self.grants} grants, "
            f"{self.additions} acknowledged additions, none lost\nfaults: {faults}"
        )


def run_seeds(seeds: Iterable[int], mutant: Mutant = no_mutant, make: MakeWorld = World) -> Summary:
    """Runs the seeds. Raises SeedFailed at the first that fails."""
    summary = Summary()
    for seed in seeds:
        summary.add(run_seed(seed, mutant, make))
        if summary.seeds % 20 == 0:
            gc.collect()  # it is off during a run
    return summary


def first_noticed(
    seeds: Iterable[int], mutant: Mutant, invariants: Collection[str], make: MakeWorld = World
) -> SeedFailed | None:
    """The first seed in which ``mutant`` breaks one of ``invariants``. None: the mutant was not caught."""
    for seed in seeds:
        try:
            run_seed(seed, mutant, make)
        except SeedFailed as failure:
            if isinstance(failure.cause, Violation) and failure.cause.invariant in invariants:
                return failure
            if not isinstance(failure.cause, AssertionError):
                raise  # the mutant itself is broken
    return None
