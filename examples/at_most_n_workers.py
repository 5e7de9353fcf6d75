"""Six processes render pictures, at most two at a time, however many are started and on however many hosts.

``python examples/at_most_n_workers.py``
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path

import holdfast

PROCESSES, AT_ONCE = 6, 2


def render(number: int, busy: Path) -> int:
    """One picture. Returns how many were being rendered at that moment, this one included."""
    with holdfast.connect() as locks, locks.semaphore(f"rendering:{busy}", AT_ONCE):
        mine = busy / str(number)
        mine.touch()
        time.sleep(0.05)  # the work
        seen = len(list(busy.iterdir()))
        mine.unlink()
        return seen


def main() -> None:
    busy = Path(tempfile.mkdtemp(prefix="holdfast-example-"))
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        seen = pool.starmap(render, [(number, busy) for number in range(PROCESSES)])
    print(f"{len(seen)} pictures, never more than {AT_ONCE} at once: {max(seen) <= AT_ONCE}")


if __name__ == "__main__":
    main()
