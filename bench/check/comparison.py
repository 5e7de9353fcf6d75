"""Counted figures beside the recorded ones: what has grown, what has shrunk. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

#: A count may grow by this share of the recorded one.
TOLERANCE: Final = 0.10

#: By operation and count.
Figures = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Difference:
    operation: str
    count: str
    recorded: float | None  #: None: not recorded yet
    counted: float | None  #: None: not counted any more

    @property
    def grown(self) -> bool:
        """More than tolerated, or never recorded, or not counted: each needs a decision, which is to record anew."""
        if self.recorded is None or self.counted is None:
            return True
        return self.counted > self.recorded * (1 + TOLERANCE)

    @property
    def shrunk(self) -> bool:
        if self.recorded is None or self.counted is None:
            return False
        return self.counted < self.recorded * (1 - TOLERANCE)

    def __str__(self) -> str:
        if self.recorded is None:
            return f"{self.operation}: {self.count} {self.counted:g}, not recorded"
        if self.counted is None:
            return f"{self.operation}: {self.count} is recorded and was not counted"
        change = self.counted / self.recorded - 1 if self.recorded else float("inf")
        return f"{self.operation}: {self.count} {self.recorded:g} → {self.counted:g} ({change:+.0%})"


def compare(recorded: Figures, counted: Figures) -> list[Difference]:
    """Every figure of both, in the order of what was counted."""
    found = []
    for operation in dict.fromkeys((*counted, *recorded)):
        before, now = recorded.get(operation, {}), counted.get(operation, {})
        found += [
            Difference(operation, count, before.get(count), now.get(count)) for count in dict.fromkeys((*now, *before))
        ]
    return found
