"""Four processes read a cached price list; one replaces it, file by file. No reader sees half of the old one.

The writer goes on reading after it has written (a downgrade): no other writer comes in between, readers do.

``python examples/cache_refresh.py``
"""

from __future__ import annotations

import multiprocessing
import tempfile
from pathlib import Path

import holdfast

READERS, READS, VERSIONS = 4, 25, 10
FILES = ("prices", "taxes", "discounts")


def read(cache: Path) -> int:
    """Reads all files many times. Returns how often they did not belong together."""
    torn = 0
    with holdfast.connect() as locks:
        lock = locks.rwlock(f"cache:{cache}")
        for _ in range(READS):
            with lock.read:
                torn += len({(cache / name).read_text() for name in FILES}) > 1
    return torn


def refresh(cache: Path) -> int:
    """Writes each version, then checks it while others may read it already. Returns how often it was not there."""
    wrong = 0
    with holdfast.connect() as locks:
        lock = locks.rwlock(f"cache:{cache}")
        for version in range(1, VERSIONS + 1):
            with lock.write.acquire():
                for name in FILES:
                    (cache / name).write_text(str(version))
                reading = lock.read.acquire()
            with reading:
                wrong += any((cache / name).read_text() != str(version) for name in FILES)
    return wrong


def main() -> None:
    cache = Path(tempfile.mkdtemp(prefix="holdfast-example-"))
    for name in FILES:
        (cache / name).write_text("0")
    with multiprocessing.get_context("spawn").Pool(READERS + 1) as pool:
        readers = pool.map_async(read, [cache] * READERS)
        wrong = pool.apply(refresh, [cache])
        torn = sum(readers.get())
    print(f"{READERS * READS} reads, {torn} of them torn; {VERSIONS} versions, {wrong} of them lost")


if __name__ == "__main__":
    main()
