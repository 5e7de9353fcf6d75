"""Run the simulation: many seeds, or one again (--seed); with a fault built in (--mutant)."""

from __future__ import annotations

import argparse
import sys
import time

from holdfast.testing.simulation.mutants import MUTANTS, unharmed
from holdfast.testing.simulation.runner import SeedFailed, run_seeds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one and print its trace if it fails")
    parser.add_argument("--first", type=int, default=0, help="first seed (default %(default)s)")
    parser.add_argument("--seeds", type=int, default=300, help="how many (default %(default)s)")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="build this fault in")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds) if options.seed is None else [options.seed]
    began = time.perf_counter()
    try:
        summary = run_seeds(seeds, MUTANTS[options.mutant] if options.mutant else unharmed)
    except SeedFailed as failure:
        print("\n".join(failure.trace))
        print(failure)
        print(f"replay: python -m holdfast.testing.simulation --seed {failure.seed}", end="")
        print(f" --mutant {options.mutant}" if options.mutant else "")
        return 1
    print(f"{summary}\n{time.perf_counter() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
