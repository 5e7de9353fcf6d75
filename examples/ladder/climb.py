"""Climb the ladder: every rung meets the fault that breaks it, then the next rung meets the same fault.

``python examples/ladder/climb.py``, or with numbers: only the steps from these rungs.
"""

from __future__ import annotations

import sys
from itertools import pairwise

from holdfast.cli.ladder.runner import Ladder
from holdfast.cli.ladder.verdicts import RUNGS, fault_named


def main(*numbers: str) -> None:
    with Ladder() as ladder:
        for lower, higher in pairwise(RUNGS):
            if numbers and str(lower.number) not in numbers:
                continue
            fault = fault_named(str(lower.breaks_at))
            results = []
            for rung in (lower, higher):
                missing = ladder.missing(rung, fault)
                text = f"needs {missing}" if missing else ladder.run(rung, fault).text
                results.append(f"{rung.number} {rung.title}: {text}")
            print(f"{fault.name:17}  {'  ->  '.join(results)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
