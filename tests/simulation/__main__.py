"""Run the simulation: many seeds, or one again (--seed); with a deliberate bug (--mutant)."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.mutants import MUTANTS, no_mutant
from tests.simulation.redlock.grants import GrantsWorld
from tests.simulation.redlock.mutants import REDLOCK_MUTANTS
from tests.simulation.redlock.world import RedlockWorld
from tests.simulation.runner import MakeWorld, SeedFailed, run_seeds
from tests.simulation.world.single import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--redlock", action="store_true", help="several servers, in place of one")
    kind.add_argument("--grants", action="store_true", help="Redlock's tokens in great numbers, and nothing else")
    parser.add_argument("--seed", type=int, help="run this one and print its trace if it fails")
    parser.add_argument("--first", type=int, default=0, help="first seed (default %(default)s)")
    parser.add_argument("--seeds", type=int, default=300, help="how many (default %(default)s)")
    parser.add_argument("--mutant", choices=sorted({*MUTANTS, *REDLOCK_MUTANTS}), help="build this fault in")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds) if options.seed is None else [options.seed]
    make: MakeWorld = RedlockWorld if options.redlock else GrantsWorld if options.grants else World
    mutants = MUTANTS if make is World else REDLOCK_MUTANTS
    if options.mutant not in (None, *mutants):
        parser.error(f"the mutant {options.mutant} is for another kind of world")
    began = time.perf_counter()
    try:
        summary = run_seeds(seeds, mutants[options.mutant] if options.mutant else no_mutant, make)
    except SeedFailed as failure:
        print("\n".join(failure.trace))
        print(failure)
        how = " --redlock" if options.redlock else " --grants" if options.grants else ""
        print(f"replay: python -m tests.simulation{how} --seed {failure.seed}", end="")
        print(f" --mutant {options.mutant}" if options.mutant else "")
        return 1
    print(f"{summary}\n{time.perf_counter() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
