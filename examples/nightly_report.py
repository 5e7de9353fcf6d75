"""A job that runs once, however often it is started; gives up when it loses its lock; and writes through a fence.

``python examples/nightly_report.py [DIRECTORY]``
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import holdfast
from holdfast.fencing import FileFence


def write_report(locks: holdfast.Client, directory: Path) -> str:
    """``"written"``, or ``"runs already"``. Raises LockLost or StaleToken if another holder has taken over."""
    lease = locks.lock("nightly-report", max_hold=3600).try_acquire()
    if lease is None:
        return "runs already"
    fence = FileFence(directory / "fence")
    with lease:
        lines = []
        for page in range(5):
            lease.check()  # no I/O: cheap enough for every step
            lines.append(f"page {page}")
        with fence.guard("report", lease):  # had we been frozen since the last check, this would refuse us
            (directory / "report.txt").write_text("\n".join(lines) + "\n")
    return "written"


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="holdfast-example-"))
    with holdfast.connect() as locks:
        print(f"{directory / 'report.txt'}: {write_report(locks, directory)}")


if __name__ == "__main__":
    main()
