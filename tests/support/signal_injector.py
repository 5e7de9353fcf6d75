"""Signals at chosen places and moments, as Ctrl-C or a signal handler would interrupt a caller.

``SignalInjector`` raises at the n-th place where the calling thread would handle a signal, perhaps twice.
``HandlerInjector`` calls a handler there, which returns. ``interrupting`` raises after a time.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import holdfast
from holdfast._core.watchdog import Watchdog

SOURCE = str(Path(holdfast.__path__[0]))
_FINALISERS: Final = frozenset({"__del__", Watchdog.call_interrupted.__name__})


class InjectedInterrupt(KeyboardInterrupt):
    """Only raised by a SignalInjector, so that it differs from a real one. (Any other kind would not end a loop.)"""


class SignalInjector:
    """Raises InjectedInterrupt at the ``first``-th place where the calling thread, inside ``places``, would handle a
    signal, and again at the ``then``-th such place after it (None: only once), while it cleans up.

    Such places are where a function begins and where a call of something written in C has returned. (Loops too.)
    """

    def __init__(self, first: int, then: int | None = None, places: tuple[str, ...] = (SOURCE,)) -> None:
        self._left: int | None = first
        self._then = then
        self._places = places
        self._place: FrameType | None = None
        self.interrupted_at: list[str] = []

    def __enter__(self) -> SignalInjector:
        gc.disable()  # finalisers of what other tests have dropped must not run here: Python swallows what they raise
        self._before = sys.gettrace()  # of a measurement of coverage, which goes on afterwards
        sys.settrace(self._trace)
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)
        sys.settrace(self._before)
        gc.enable()

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        # It only notes the place: raised from here, an exception corrupts the stack of CPython 3.11 now and then.
        self._place = frame if event in ("call", "c_return") else None
        if self.interrupted_at and self._left is not None and not self._is_elsewhere(frame):
            sys.settrace(self._trace)  # CPython removes a trace function that raises
            frame.f_trace = self._begin(frame)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        return None if self._is_elsewhere(frame) else self._begin(frame)

    def _begin(self, frame: FrameType) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode" and self._place is frame and self._left is not None:
            self._place = None
            if not _is_finalising(frame):
                self._left -= 1
                if self._left < 0:
                    self._left, self._then = self._then, None
                    if self._left is None:
                        sys.setprofile(None)  # that was the last one: the rest runs at full speed
                    self._interrupt(frame)
        return self._step

    def _interrupt(self, frame: FrameType) -> None:
        code = frame.f_code
        self.interrupted_at.append(f"{code.co_filename.removeprefix(SOURCE)}:{frame.f_lineno} in {code.co_name}")
        raise InjectedInterrupt

    def _is_elsewhere(self, frame: FrameType) -> bool:
        return not frame.f_code.co_filename.startswith(self._places)


def _is_finalising(frame: FrameType | None) -> bool:
    """Whether it is a finaliser, or called by one: there Python itself swallows what is raised."""
    while frame is not None:
        if frame.f_code.co_name in _FINALISERS:
            return True
        frame = frame.f_back
    return False


class HandlerInjector(SignalInjector):
    """As SignalInjector, but calls ``handle`` between two instructions of the thread and goes on."""

    def __init__(self, first: int, handle: Callable[[], object], places: tuple[str, ...] = (SOURCE,)) -> None:
        super().__init__(first, None, places)
        self._handle = handle

    @property
    def handled(self) -> bool:
        return bool(self.interrupted_at)

    def _interrupt(self, frame: FrameType) -> None:
        self.interrupted_at.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
        self._handle()


class TimerInterrupt(BaseException):
    """As KeyboardInterrupt, but only raised by ``interrupting``."""


@contextmanager
def interrupting() -> Iterator[Callable[[float, Callable[[], object]], bool]]:
    """``interrupt(seconds, what)`` calls ``what()`` and interrupts it after that time by a timer's signal, wherever the
    main thread is. Returns whether it did."""
    armed = False

    def handler(number: int, frame: object) -> None:
        if armed:
            raise TimerInterrupt

    def interrupt(seconds: float, what: Callable[[], object]) -> bool:
        nonlocal armed
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, seconds)
            what()
            armed = False
        except TimerInterrupt:
            # Another thread may take the signal late, when it is no longer expected. In a finaliser it would be
            # swallowed, and pytest would keep what was to be finalised, with its traceback: a lease that never ends.
            armed = False
            return True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return False

    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGALRM, before)
