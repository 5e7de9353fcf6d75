"""Three processes add to one number in a file, by reading and writing it. No update is lost.

``python examples/counter.py``
"""

from __future__ import annotations

import multiprocessing
import tempfile
from pathlib import Path

import holdfast
from holdfast.fencing import FileFence

PROCESSES, TIMES = 3, 20


def add(file: Path) -> None:
    """One process's share. It connects by itself: a client is not for handing around."""
    fence = FileFence(file.with_suffix(".fence"))
    with holdfast.connect() as locks:
        lock = locks.lock(f"counter:{file}")
        for _ in range(TIMES):
            with lock as lease, fence.guard("counter", lease):  # the guard before the first read
                file.write_text(str(int(file.read_text()) + 1))


def main() -> None:
    file = Path(tempfile.mkdtemp(prefix="holdfast-example-")) / "counter"
    file.write_text("0")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=add, args=(file,)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    print(f"{file.read_text()} of {PROCESSES * TIMES}")


if __name__ == "__main__":
    main()
