"""The shared thing of the demo: a file with a number in it."""

from __future__ import annotations

import os
from pathlib import Path


def read(path: Path) -> int:
    return int(path.read_text())


def write(path: Path, value: int) -> None:
    """Replace the number as a whole. So a torn file is not what loses updates here: only reading, then writing, is."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(str(value))
    os.replace(new, path)
