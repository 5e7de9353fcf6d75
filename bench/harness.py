"""Rounds of contestants, and what may be said about them.

Contestants take turns within each round, and each round begins with another one: a machine that grows slow for a second
then hurts all of them, not the one whose turn it was. What is compared are medians over the rounds; the spread of the
rounds' own ratios says how far to trust the comparison.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

MICROSECONDS: Final = "µs a pair"
#: Hardly moved by what else the machine does; but it leaves out the server's half of the work.
CLIENT_CPU: Final = "of it CPU of the client, µs"
OURS: Final = "holdfast"

Round = Callable[[], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much to measure. A quick run shows that everything works; its figures are not worth keeping."""

    quick: bool = False

    def __call__(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Figure:
    """One contestant by one measure: the value of each round."""

    contestant: str
    measure: str
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def low(self) -> float:
        return min(self.rounds)

    @property
    def high(self) -> float:
        return max(self.rounds)


class Ratio(NamedTuple):
    """The ratio of two medians, and the smallest and largest ratio within one round."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f}× ({self.low:.2f}–{self.high:.2f})"


@dataclass(frozen=True, slots=True)
class Promise:
    """One line of the closing table. ``met`` is None where nothing was promised."""

    what: str
    measured: str
    reach: str = "–"
    met: bool | None = None


@dataclass(slots=True)
class Answer:
    """What one question found out."""

    conditions: str
    figures: list[Figure]
    promises: list[Promise] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    #: The measure to draw, and which way is good; None: not worth a picture.
    drawn: tuple[str, Literal["less", "more"]] | None = None

    def figure(self, contestant: str, measure: str) -> Figure:
        return next(one for one in self.figures if (one.contestant, one.measure) == (contestant, measure))

    def ratio(self, contestant: str, other: str, measure: str) -> Ratio:
        mine, theirs = self.figure(contestant, measure), self.figure(other, measure)
        single = [a / b for a, b in zip(mine.rounds, theirs.rounds, strict=True)]
        return Ratio(mine.median / theirs.median, min(single), max(single))

    def promise(self, what: str, measured: str, reach: str, met: bool) -> None:
        self.promises.append(Promise(what, measured, reach, met))


def interleave(contestants: Mapping[str, Round], rounds: int) -> list[Figure]:
    """Let each contestant play ``rounds`` rounds, taking turns. A round returns its measures."""
    played: dict[tuple[str, str], list[float]] = {}
    names = list(contestants)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()  # nobody pays for the garbage of the one before
            for measure, value in contestants[name]().items():
                played.setdefault((name, measure), []).append(value)
    order = sorted(played, key=lambda key: names.index(key[0]))
    return [Figure(*key, tuple(played[key])) for key in order]


def race(contestants: Mapping[str, Callable[[], object]], *, rounds: int, pairs: int) -> list[Figure]:
    """Time one pair of operations of each contestant, in microseconds."""

    def timed(pair: Callable[[], object]) -> Round:
        return lambda: _time(pair, pairs)

    for pair in contestants.values():
        _time(pair, max(1, pairs // 2))  # connections, scripts, caches
    return interleave({name: timed(pair) for name, pair in contestants.items()}, rounds)


def _time(pair: Callable[[], object], times: int) -> Mapping[str, float]:
    repeated = range(times)
    cpu, start = time.process_time(), time.perf_counter()
    for _ in repeated:
        pair()
    elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {MICROSECONDS: elapsed / times * 1e6, CLIENT_CPU: cpu / times * 1e6}


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that is not below ``share`` of all values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
