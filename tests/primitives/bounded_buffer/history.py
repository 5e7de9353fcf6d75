"""What producers and consumers have recorded, and what must hold of it. Pure.

An item is *acknowledged* when its ``put`` has returned. It was *taken* when a ``take`` has returned it, or, if the
consumer was killed before it could record that, when the buffer names it as that consumer's last one.

Times are those of one machine's monotonic clock. They are recorded around the operations, so an item counts as
available from a little later than it was to a little later than it was taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    PUTTING = "putting"  # about to put an item
    PUT = "put"  # acknowledged
    TAKING = "taking"  # waits for an item
    TOOK = "took"
    FAILED = "failed"  # the operation has raised: it may have taken effect
    FROZEN = "frozen"
    RESUMED = "resumed"
    KILLED = "killed"


class Event(NamedTuple):
    at: float
    actor: str
    kind: Kind
    item: int | None = None


Interval = tuple[float, float]


class Findings(NamedTuple):
    lost: set[int]  #: acknowledged, and neither taken nor left
    doubled: set[int]  #: taken twice, or taken and still there
    invented: set[int]  #: taken or left, but never put
    longest_wait: float  #: for how long a live consumer has waited while there was an item, in seconds

    @property
    def consistent(self) -> bool:
        return not (self.lost or self.doubled or self.invented)


def examine(events: Iterable[Event], left: Sequence[int], last_taken: Mapping[str, int]) -> Findings:
    """``left``: the items in the buffer at the end. ``last_taken``: by each consumer, as the buffer knows it."""
    history = sorted(events, key=lambda event: event.at)
    put = {event.item for event in history if event.kind is Kind.PUT}
    begun = {event.item for event in history if event.kind is Kind.PUTTING}
    taken = _taken(history, last_taken)
    seen = Counter([*(item for _, item in taken), *left])
    return Findings(
        lost={item for item in put if item is not None and item not in seen},
        doubled={item for item, times in seen.items() if times > 1},
        invented={item for item in seen if item not in begun},
        longest_wait=_longest_wait(history, left),
    )


def _taken(history: Sequence[Event], last_taken: Mapping[str, int]) -> list[tuple[str, int]]:
    """Who took which item: as recorded, and of those that were killed in between, as the buffer says."""
    recorded = [(event.actor, event.item) for event in history if event.kind is Kind.TOOK and event.item is not None]
    unrecorded = [each for each in last_taken.items() if each not in set(recorded)]
    return [*recorded, *unrecorded]


def _longest_wait(history: Sequence[Event], left: Sequence[int]) -> float:
    """The longest time for which a consumer that was alive has waited and there was an item all the time."""
    end = history[-1].at if history else 0.0
    available = _merged(_availability(history, left, end))
    waits = list(_waits(history, end))
    overlaps = (min(wait[1], there[1]) - max(wait[0], there[0]) for wait in waits for there in _near(available, wait))
    return max(overlaps, default=0.0)


def _availability(history: Sequence[Event], left: Sequence[int], end: float) -> Iterator[Interval]:
    """When each item was there: from its acknowledgement to its end. A consumer that is frozen or killed may have taken
    an item before that without recording it, so from then on an item that no other has recorded counts as gone."""
    stopped: dict[str, float] = {}  # since when an actor that waits cannot record anything
    gone: dict[int, float] = {}
    for event in history:
        if event.kind in (Kind.FROZEN, Kind.KILLED):
            stopped.setdefault(event.actor, event.at)
        elif event.kind is Kind.TOOK and event.item is not None:
            gone[event.item] = min(event.at, stopped.pop(event.actor, event.at))
        elif event.kind in (Kind.FAILED, Kind.TAKING):
            stopped.pop(event.actor, None)
    for event in history:
        if event.kind is Kind.PUT and event.item is not None:
            if event.item in gone:
                yield event.at, gone[event.item]
            elif event.item in left:
                yield event.at, end


def _waits(history: Sequence[Event], end: float) -> Iterator[Interval]:
    """When a live consumer waited."""
    since: dict[str, float] = {}
    frozen: set[str] = set()
    for event in history:
        if event.kind is Kind.TAKING:
            since[event.actor] = event.at
        elif event.kind is Kind.RESUMED and event.actor in frozen:
            frozen.discard(event.actor)
            since[event.actor] = event.at
        elif event.kind is not Kind.RESUMED and event.actor in since:
            if event.kind is Kind.FROZEN:
                frozen.add(event.actor)
            yield since.pop(event.actor), event.at
    yield from ((begun, end) for begun in since.values())


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for begin, end in sorted(interval for interval in intervals if interval[0] < interval[1]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _near(intervals: Sequence[Interval], wait: Interval) -> Iterator[Interval]:
    """Those that overlap ``wait``."""
    low, high = 0, len(intervals)
    while low < high:
        middle = (low + high) // 2
        if intervals[middle][1] <= wait[0]:
            low = middle + 1
        else:
            high = middle
    while low < len(intervals) and intervals[low][0] < wait[1]:
        yield intervals[low]
        low += 1
