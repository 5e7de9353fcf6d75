"""Measures candidates in rounds, and compares them.

Candidates take turns within each round, and each round begins with another candidate, so that a short slowdown of the
machine affects all of them. Medians over the rounds are compared; the spread of the ratios within single rounds shows
how reliable a comparison is.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

MICROSECONDS: Final = "µs a pair"
#: Little affected by other load on the machine, but it leaves out the server's part of the work.
CLIENT_CPU: Final = "of it CPU of the client, µs"
OURS: Final = "holdfast"

Round = Callable[[], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much to measure. A quick run only shows that everything works; its figures mean little."""

    quick: bool = False

    def __call__(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Figure:
    """One candidate by one measure: the value of each round."""

    candidate: str
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
    """The result of one question."""

    conditions: str
    figures: list[Figure]
    promises: list[Promise] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    #: The measure to draw, and which direction is better; None: no picture.
    drawn: tuple[str, Literal["less", "more"]] | None = None

    def figure(self, candidate: str, measure: str) -> Figure:
        return next(one for one in self.figures if (one.candidate, one.measure) == (candidate, measure))

    def ratio(self, candidate: str, other: str, measure: str) -> Ratio:
        mine, theirs = self.figure(candidate, measure), self.figure(other, measure)
        single = [a / b for a, b in zip(mine.rounds, theirs.rounds, strict=True)]
        return Ratio(mine.median / theirs.median, min(single), max(single))

    def promise(self, what: str, measured: str, reach: str, met: bool) -> None:
        self.promises.append(Promise(what, measured, reach, met))


def interleave(candidates: Mapping[str, Round], rounds: int) -> list[Figure]:
    """Run ``rounds`` rounds of each candidate, in turns. A round returns its measures."""
    measured: dict[tuple[str, str], list[float]] = {}
    names = list(candidates)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()  # so that no candidate pays for the garbage of the previous one
            for measure, value in candidates[name]().items():
                measured.setdefault((name, measure), []).append(value)
    order = sorted(measured, key=lambda key: names.index(key[0]))
    return [Figure(*key, tuple(measured[key])) for key in order]


def race(candidates: Mapping[str, Callable[[], object]], *, rounds: int, pairs: int) -> list[Figure]:
    """Time one pair of operations of each candidate, in microseconds."""

    def timed(pair: Callable[[], object]) -> Round:
        return lambda: _time(pair, pairs)

    for pair in candidates.values():
        _time(pair, max(1, pairs // 2))  # connections, scripts, caches
    return interleave({name: timed(pair) for name, pair in candidates.items()}, rounds)


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
