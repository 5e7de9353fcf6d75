"""A contender of either language, which waits for its turn, has it, and gives it back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import holdfast
from tests.interop.curator import Java, Recipe
from tests.support.waiting import eventually

_LONGEST: Final = 40.0


class Turn(Protocol):
    def held(self) -> tuple[float, int]:
        """Waits for its turn. When it began, and the fencing token."""

    def release(self) -> float:
        """When the release began."""


class PythonTurn:
    """``acquire`` is called on a thread of its own, and returns a lease."""

    def __init__(self, acquire: Callable[[], Any]) -> None:
        self._acquire = acquire
        self._end = threading.Event()
        self._held = threading.Event()
        self._began = (0.0, 0)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            lease = self._acquire()
            self._began = (time.monotonic(), lease.token)
            self._held.set()
            self._end.wait(_LONGEST)
            lease.release()
        except BaseException as error:
            self._error = error
            self._held.set()

    @property
    def waits(self) -> bool:
        return not self._held.is_set()

    def held(self) -> tuple[float, int]:
        assert self._held.wait(_LONGEST)
        if self._error is not None:
            raise self._error
        return self._began

    def release(self) -> float:
        before = time.monotonic()
        self._end.set()
        self._thread.join(_LONGEST)
        if self._error is not None:
            raise self._error
        return before


class JavaTurn:
    def __init__(self, java: Java, contender: str, path: str, recipe: Recipe = "mutex", size: int = 0) -> None:
        self._java, self._contender, self._recipe = java, contender, recipe
        java.acquire(contender, path, recipe=recipe, size=size)

    def held(self) -> tuple[float, int]:
        held = self._java.held(self._contender, _LONGEST)
        assert held is not None
        return held.at, held.token

    def release(self) -> float:
        return self._java.release(self._contender, self._recipe)


def queued(locks: holdfast.Client, name: str, contenders: int) -> None:
    """Waits until the object has so many holders and waiters."""

    def count() -> int:
        state = locks.inspect(name)
        return len(state.holders) + state.waiters

    eventually(lambda: count() == contenders, within=20.0, event=f"{contenders} contenders for {name!r}")
