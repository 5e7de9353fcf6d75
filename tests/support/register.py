"""The resource behind the lock: a set of numbers in a file, changed by read-modify-write, with a fence or without."""

from __future__ import annotations

import json
import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from holdfast.fencing import FileFence

_RESOURCE: Final = "register"


class Register:
    """Any number of processes may use it. Fenced: a load with a newer token refuses later loads and stores with older
    tokens (rule 4)."""

    def __init__(self, directory: Path, *, fenced: bool) -> None:
        directory.mkdir(exist_ok=True)
        self._file = directory / "numbers"
        # Not durable: processes are killed here, not machines.
        self._fence = FileFence(directory / "fence", durable=False) if fenced else None

    def load(self, lease: Any) -> set[int]:
        """Read, with the guard raised to this holder's token. Raises StaleToken."""
        with self._guard(lease):
            return self.numbers()

    def store(self, lease: Any, numbers: set[int]) -> None:
        """Replace the numbers. Raises StaleToken if a newer holder has loaded meanwhile."""
        with self._guard(lease):
            new = self._file.with_suffix(f".{os.getpid()}")
            new.write_text(json.dumps(sorted(numbers)), "utf-8")
            new.replace(self._file)

    def numbers(self) -> set[int]:
        return set(json.loads(self._file.read_text("utf-8"))) if self._file.exists() else set()

    def _guard(self, lease: Any) -> AbstractContextManager[Any]:
        return nullcontext() if self._fence is None else self._fence.guard(_RESOURCE, lease)
