"""The shared resource of the demo: a number in a file."""

from __future__ import annotations

import os
from pathlib import Path


def read(path: Path) -> int:
    return int(path.read_text())


def write(path: Path, value: int) -> None:
    """Replace the file in one step: updates are lost by read-then-write only, never by a half-written file."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(str(value))
    os.replace(new, path)
