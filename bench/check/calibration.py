"""CPU time in units of a fixed loop: machines and their load differ, the ratio hardly does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_ROUNDS: Final = 7
_LOOP: Final = 2_000


def cpu_in_loops(operation: Callable[[], object], times: int) -> float:
    """CPU time of one operation, 1 = one turn of the loop. The least of several rounds, in turns with the loop."""
    operations, loops = [], []
    for _ in range(_ROUNDS):
        loops.append(_cpu(_turn, _LOOP))
        operations.append(_cpu(operation, times))
    return min(operations) / min(loops)


def _turn() -> int:
    """Calls, attributes, arithmetic, a dictionary: about what a lock does, some 100 instructions."""
    total, seen = 0, {}
    for number in range(8):
        seen[number] = total
        total += seen.get(number - 1, 0) + len(seen)
    return total


def _cpu(operation: Callable[[], object], times: int) -> float:
    started = time.process_time()
    for _ in range(times):
        operation()
    return (time.process_time() - started) / times
