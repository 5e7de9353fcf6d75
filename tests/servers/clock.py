"""A wall clock for one server that is moved while it runs: Redis expires keys by it (faults R19, R20, R21)."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

COMPILER: Final = shutil.which("cc")

_SOURCE: Final = Path(__file__).with_name("clock_shim.c")
_OFFSET: Final = struct.Struct("=q")  # nanoseconds, as the shim reads them
_COMPILE_DEADLINE: Final = 30.0


def compile_shim(directory: Path) -> Path:
    """Compile the shim into ``directory``; once is enough for any number of clocks."""
    assert COMPILER is not None, "no C compiler on PATH"
    library = directory / "clock_shim.so"
    subprocess.run(
        [COMPILER, "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", library, _SOURCE],
        check=True, timeout=_COMPILE_DEADLINE,
    )  # fmt: skip
    return library


class Clock:
    """``RedisServer(clock=clock)``, then ``clock.move(60)``. It starts with the true time.

    Only the wall clock is moved; intervals that the server measures with its monotonic clock are unaffected.
    """

    def __init__(self, shim: Path, directory: Path) -> None:
        path = directory / "clock"
        path.write_bytes(_OFFSET.pack(0))
        with path.open("r+b") as file:
            self._offset = mmap.mmap(file.fileno(), _OFFSET.size)
        #: Environment variables for the process that uses this clock.
        self.environment = {"LD_PRELOAD": str(shim), "CLOCK_FILE": str(path)}

    def move(self, seconds: float) -> None:
        """Move the clock forward by ``seconds`` from its present time; back if negative."""
        (offset,) = _OFFSET.unpack_from(self._offset)
        _OFFSET.pack_into(self._offset, 0, offset + round(seconds * 1e9))

    def close(self) -> None:
        self._offset.close()
