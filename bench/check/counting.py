"""Counts what the calling thread executes: bytecode instructions, calls of Python functions, calls of C functions."""

from __future__ import annotations

import gc
import statistics
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple


class Executed(NamedTuple):
    instructions: int
    calls: int
    c_calls: int


def executed(operation: Callable[[], object], times: int) -> Executed:
    """The median of ``times`` runs, by each count: the few in which a reply came late or a timer fired are left out."""
    gc.collect()
    gc.disable()  # a finalizer that runs now and then would be counted
    try:
        runs = [_once(operation) for _ in range(times)]
    finally:
        gc.enable()
    return Executed(*(int(statistics.median_low(column)) for column in zip(*runs, strict=True)))


def _once(operation: Callable[[], object]) -> Executed:
    counter = _Counter()
    sys.setprofile(counter.profile)
    sys.settrace(counter.trace)
    try:
        operation()
    finally:
        sys.settrace(None)
        sys.setprofile(None)
    return Executed(counter.instructions, counter.calls, counter.c_calls)


class _Counter:
    def __init__(self) -> None:
        self.instructions = self.calls = self.c_calls = 0

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """For each new frame."""
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self.calls += 1
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self.instructions += 1
        return self._step

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            self.c_calls += 1
