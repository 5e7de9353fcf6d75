"""Calls on threads of their own, and their results."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tests.support.waiting import eventually


class Call:
    """A call on a thread; ``result`` is what it returned, or raises what it raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    @property
    def thread(self) -> int | None:
        """The identifier of its thread."""
        return self._thread.ident

    def result(self, within: float = 5.0) -> Any:
        self._thread.join(within)
        assert self.done, f"not done within {within:g} s"
        if self._error is not None:
            raise self._error
        return self._value


class Later(Call):
    """``action()`` on a thread once ``condition()`` holds; ``began`` is the time at which it was called."""

    def __init__(self, condition: Callable[[], object], action: Callable[[], object]) -> None:
        self.began = float("inf")

        def act() -> object:
            eventually(condition)
            self.began = time.monotonic()
            return action()

        super().__init__(act)

    def join(self) -> None:
        self.result(within=10.0)
