"""What the demo shows, as data. No terminal, no process."""

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
    """Part one: some processes add to one number, once without a lock and once with it."""

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

    def timeline(self, width: int) -> list[frozenset[int]]:
        """The last ``width`` moments, oldest first: in each, the lanes that were inside at the same time.

        One for each time a process entered or left; not evenly spaced, so that even the shortest overlap is visible.
        """
        return list(_together(self.spans))[-width:]


def _together(spans: Sequence[Span]) -> Iterator[frozenset[int]]:
    """The lanes inside, between one entry or exit and the next. Moments with no lane inside are left out."""
    # At equal times an exit sorts before an entry: spans that only touch do not overlap.
    edges = sorted([(span.entered, 1, span.lane) for span in spans] + [(span.left, 0, span.lane) for span in spans])
    inside: set[int] = set()
    entered = False
    for _, entering, lane in edges:
        if not entering and entered:
            yield frozenset(inside)
        entered = bool(entering)
        if entering:
            inside.add(lane)
        else:
            inside.discard(lane)


Tone = Literal["plain", "good", "bad"]


class Event(NamedTuple):
    """One event of part two."""

    seconds: float  #: since the part began
    actor: str
    text: str
    tone: Tone = "plain"


@dataclass
class Freeze:
    """Part two: a holder is frozen past its lease and wakes up when another process holds the lock."""

    title: str
    events: list[Event] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """The counts of one run."""

    unlocked: Race
    locked: Race
    loss_reason: str | None  #: as the frozen holder saw it; None: it did not notice
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
