"""The shared resource: a number in a file. Clients read it and write it back plus one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from holdfast.cli.demo import counter


class Register:
    """If ``lock`` has a ``guard``, every access goes through it; otherwise accesses are not checked."""

    def __init__(self, path: Path, lock: Any = None) -> None:
        self._path = path
        self._lock = lock

    def create(self) -> None:
        counter.write(self._path, 0)

    def read(self) -> int:
        with self._guard():
            return counter.read(self._path)

    def write(self, value: int) -> None:
        with self._guard():
            counter.write(self._path, value)

    def _guard(self) -> AbstractContextManager[Any]:
        if not hasattr(self._lock, "guard"):
            return nullcontext()
        guard: AbstractContextManager[Any] = self._lock.guard(f"{self._path}.fence")
        return guard
