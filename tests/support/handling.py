"""A signal handler that returns, at a chosen place: what it does comes in between two instructions of its thread."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType

from tests.support.striker import SOURCE, Striker


class Handling(Striker):
    """As ``Striker``, but it calls ``handle`` and goes on."""

    def __init__(self, first: int, handle: Callable[[], object], places: tuple[str, ...] = (SOURCE,)) -> None:
        super().__init__(first, None, places)
        self._handle = handle

    @property
    def handled(self) -> bool:
        return bool(self.struck_at)

    def _strike(self, frame: FrameType) -> None:
        self.struck_at.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
        self._handle()
