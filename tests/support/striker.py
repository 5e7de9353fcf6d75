"""A signal that strikes the calling thread at a chosen place, and once more a chosen number of places later."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import holdfast

SOURCE = str(Path(holdfast.__path__[0]))


class Strike(KeyboardInterrupt):
    """Nobody else's: told apart from a real one. (A loop is left by no other kind of exception.)"""


class Striker:
    """Raises Strike at the ``first``-th place where the calling thread, inside ``places``, would handle a signal, and
    again ``then`` lines later (None: only once), in the middle of its cleaning up.

    Such places are where a function begins and where a call of something written in C has returned. (Loops too.)
    """

    def __init__(self, first: int, then: int | None = None, places: tuple[str, ...] = (SOURCE,)) -> None:
        self._left = first
        self._then = then
        self._places = places
        self._place: FrameType | None = None
        self.struck_at: list[str] = []

    def __enter__(self) -> Striker:
        gc.disable()  # finalisers of what other tests have dropped shall not run here: Python swallows what they raise
        sys.settrace(self._trace)
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)
        sys.settrace(None)
        gc.enable()

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        # It only notes the place: raised from here, an exception corrupts the stack of CPython 3.11 now and then.
        self._place = frame if event in ("call", "c_return") else None
        if self.struck_at and self._then is not None:
            sys.settrace(self._trace)  # CPython takes a function that raises away

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self._is_elsewhere(frame):
            return None
        frame.f_trace_opcodes = True
        if not self.struck_at:
            if event == "opcode" and self._place is frame:
                self._place = None
                if not _is_finalising(frame):
                    self._left -= 1
                    if self._left < 0:
                        self._strike(frame)
        elif event == "line" and self._then is not None and not _is_finalising(frame):
            self._then -= 1
            if self._then < 0:
                self._then = None
                self._strike(frame)
        return self._trace

    def _strike(self, frame: FrameType) -> None:
        code = frame.f_code
        self.struck_at.append(f"{code.co_filename.removeprefix(SOURCE)}:{frame.f_lineno} in {code.co_name}")
        raise Strike

    def _is_elsewhere(self, frame: FrameType) -> bool:
        return not frame.f_code.co_filename.startswith(self._places)


def _is_finalising(frame: FrameType | None) -> bool:
    """Whether it is a finaliser or called by one: there Python itself swallows what is raised."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
