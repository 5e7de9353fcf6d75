"""What the demo shows, as data: no terminal, no process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class Span(NamedTuple):
    """One update: a process was between reading and writing, from ``entered`` to ``left`` (the host's clock)."""

    entered: float
    left: float
    lane: int


@dataclass
class Race:
    """Some processes add to one number: act one, once without a lock and once with it."""

    title: str
    pids: Sequence[int]
    times: int  #: updates of each process
    spans: list[Span] = field(default_factory=list)
    found: int = 0  #: what the file says

    @property
    def done(self) -> int:
        return len(self.spans)

    @property
    def expected(self) -> int:
        """Updates of all processes, when they are done."""
        return self.times * len(self.pids)

    @property
    def lost(self) -> int:
        return self.done - self.found

    def done_by(self, lane: int) -> int:
        return sum(span.lane == lane for span in self.spans)

    def most_at_once(self) -> int:
        return max((len(lanes) for lanes in _together(self.spans)), default=0)

    def score(self, width: int) -> list[frozenset[int]]:
        """The last ``width`` moments, oldest first: in each, the lanes that were inside at the same time.

        Moments in which somebody came or left; not evenly spaced in time, so that even the shortest one is seen.
        """
        return list(_together(self.spans))[-width:]


def _together(spans: Sequence[Span]) -> Iterator[frozenset[int]]:
    """Who was inside, from one coming or leaving to the next; moments without anybody are left out."""
    # At equal times leaving goes first: touching is not overlapping.
    edges = sorted([(span.entered, 1, span.lane) for span in spans] + [(span.left, 0, span.lane) for span in spans])
    inside: set[int] = set()
    came = False
    for _, coming, lane in edges:
        if not coming and came:
            yield frozenset(inside)
        came = bool(coming)
        if coming:
            inside.add(lane)
        else:
            inside.discard(lane)


Mood = Literal["plain", "good", "bad"]


class Line(NamedTuple):
    """One thing that happened in act two."""

    seconds: float  #: since the act began
    actor: str
    text: str
    mood: Mood = "plain"


@dataclass
class Freeze:
    """A holder is frozen past its lease, and wakes up when another one has the lock: act two."""

    title: str
    lines: list[Line] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """The counts of one run, as they were."""

    unlocked: Race
    locked: Race
    loss_reason: str | None  #: what the frozen holder was told; None: it was not told
    stale_write: Literal["refused", "accepted"]

    @property
    def as_promised(self) -> bool:
        return (
            self.unlocked.lost > 0
            and self.locked.lost == 0
            and self.loss_reason is not None
            and self.stale_write == "refused"
        )

    def json(self) -> str:
        return json.dumps(
            {
                "unlocked_lost": self.unlocked.lost,
                "holdfast_lost": self.locked.lost,
                "stale_write": self.stale_write,
            }
        )
