"""Run the simulation: many seeds, or one again (--seed); with a deliberate bug (--mutant)."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.conditions.directed import DirectedWorld
from tests.simulation.conditions.mutants import CONDITION_MUTANTS
from tests.simulation.conditions.world import BufferWorld
from tests.simulation.local.mutants import LOCAL_MUTANTS
from tests.simulation.local.world import LocalWorld
from tests.simulation.mutants import MUTANTS, Mutant, no_mutant
from tests.simulation.redlock.grants import GrantsWorld
from tests.simulation.redlock.mutants import REDLOCK_MUTANTS
from tests.simulation.redlock.world import RedlockWorld
from tests.simulation.runner import MakeWorld, SeedFailed, run_seeds
from tests.simulation.sharing.mutants import SHARING_MUTANTS
from tests.simulation.sharing.world import SharingWorld
from tests.simulation.world.single import World

#: By the option that chooses it: a kind of world, and its mutants.
WORLDS: dict[str, tuple[MakeWorld, dict[str, Mutant]]] = {
    "": (World, MUTANTS),
    "redlock": (RedlockWorld, REDLOCK_MUTANTS),
    "grants": (GrantsWorld, REDLOCK_MUTANTS),
    "local": (LocalWorld, LOCAL_MUTANTS),
    "sharing": (SharingWorld, SHARING_MUTANTS),
    "conditions": (BufferWorld, CONDITION_MUTANTS),
    "notifies": (DirectedWorld, CONDITION_MUTANTS),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    kind = parser.add_mutually_exclusive_group()
    for option, meaning in (
        ("redlock", "several servers, in place of one"),
        ("grants", "Redlock's tokens in great numbers, and nothing else"),
        ("local", "many callers in each process, which overtake each other"),
        ("sharing", "read-write locks and semaphores, in place of locks"),
        ("conditions", "a bounded buffer, by conditions"),
        ("notifies", "one item and one notify, and a waiter that ends at that moment"),
    ):
        kind.add_argument(f"--{option}", dest="kind", action="store_const", const=option, default="", help=meaning)
    parser.add_argument("--seed", type=int, help="run this one and print its trace if it fails")
    parser.add_argument("--first", type=int, default=0, help="first seed (default %(default)s)")
    parser.add_argument("--seeds", type=int, default=300, help="how many (default %(default)s)")
    parser.add_argument(
        "--mutant",
        choices=sorted({name for _, mutants in WORLDS.values() for name in mutants}),
        help="build this fault in",
    )
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds) if options.seed is None else [options.seed]
    make, mutants = WORLDS[options.kind]
    if options.mutant not in (None, *mutants):
        parser.error(f"the mutant {options.mutant} is for another kind of world")
    began = time.perf_counter()
    try:
        summary = run_seeds(seeds, mutants[options.mutant] if options.mutant else no_mutant, make)
    except SeedFailed as failure:
        print("\n".join(failure.trace))
        print(failure)
        how = f" --{options.kind}" if options.kind else ""
        print(f"replay: python -m tests.simulation{how} --seed {failure.seed}", end="")
        print(f" --mutant {options.mutant}" if options.mutant else "")
        return 1
    print(f"{summary}\n{time.perf_counter() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
