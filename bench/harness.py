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

from bench.progress import step
from bench.server_cost import ServerMeter

MICROSECONDS: Final = "µs a pair"
#: Little affected by other load on the machine, but it leaves out the server's part of the work.
CLIENT_CPU: Final = "client's CPU, µs"
SERVER_CPU: Final = "server's CPU, µs"
#: What a pair costs where nothing is waited for: as the time, but little affected by other load.
TOTAL_CPU: Final = "CPU of both, µs"
COMMANDS: Final = "commands"
OURS: Final = "holdfast"

Round = Callable[[], Mapping[str, float]]
Better = Literal["less", "more"]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much to measure. A quick run only shows that everything works; its figures mean little."""

    quick: bool = False

    def __call__(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Figure:
    """One candidate by one measure: the value of each round. ``size``: of tasks, processes or leases, if it varies."""

    candidate: str
    measure: str
    rounds: tuple[float, ...]
    size: int | None = None

    @property
    def label(self) -> str:
        return self.candidate if self.size is None else f"{self.size:,} × {self.candidate}"

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
        return f"{self.value:.3g}× ({self.low:.3g}–{self.high:.3g})"


@dataclass(frozen=True, slots=True)
class Promise:
    """One row of the closing table. ``met`` is None where it was not measured. ``headline``: the README shows it."""

    what: str
    measured: str
    reach: str = "–"
    met: bool | None = None
    headline: bool = False


class Curve(NamedTuple):
    """A measure to draw over the size: the cost of an operation should not grow with it."""

    measure: str
    axis: str  #: what the size counts
    better: Better


@dataclass(slots=True)
class Answer:
    """The result of one question."""

    conditions: str
    figures: list[Figure]
    promises: list[Promise] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    #: The measure to draw as bars, and which direction is better; None: no bars.
    drawn: tuple[str, Better] | None = None
    curves: list[Curve] = field(default_factory=list)

    def figure(self, candidate: str, measure: str, size: int | None = None) -> Figure:
        """LookupError if it is missing."""
        wanted = (candidate, measure, size)
        for figure in self.figures:
            if (figure.candidate, figure.measure, figure.size) == wanted:
                return figure
        raise LookupError(f"no figure {wanted}")

    def ratio(self, candidate: str, other: str, measure: str, size: int | None = None) -> Ratio | None:
        """None if one of them is missing."""
        try:
            mine, theirs = self.figure(candidate, measure, size), self.figure(other, measure, size)
        except LookupError:
            return None
        single = [a / b for a, b in zip(mine.rounds, theirs.rounds, strict=True)]
        return Ratio(mine.median / theirs.median, min(single), max(single))

    def promise(self, what: str, measured: str, reach: str, met: bool, *, headline: bool = False) -> None:
        self.promises.append(Promise(what, measured, reach, met, headline))

    def at_most(
        self, what: str, measured: Ratio | float | None, limit: float, stretch: float | None = None, unit: str = ""
    ) -> None:
        """A target that the README shows. None: a peer is missing."""
        self._target(what, measured, "≤", limit, stretch, unit)

    def at_least(
        self, what: str, measured: Ratio | float | None, limit: float, stretch: float | None = None, unit: str = ""
    ) -> None:
        """The same where more is better."""
        self._target(what, measured, "≥", limit, stretch, unit)

    def compare(self, what: str, ratio: Ratio | None, *, headline: bool = True) -> None:
        """A ratio that has no target."""
        self.promises.append(Promise(what, "not measured" if ratio is None else str(ratio), headline=headline))

    def _target(
        self, what: str, measured: Ratio | float | None, sign: str, limit: float, stretch: float | None, unit: str
    ) -> None:
        value: float | None
        if isinstance(measured, Ratio):
            value, text, unit = measured.value, str(measured), "×"
        else:
            value, text = measured, "not measured" if measured is None else f"{measured:.3g}{unit}"
        met = None if value is None else value <= limit if sign == "≤" else value >= limit
        reach = f"{sign} {limit:g}{unit}" + ("" if stretch is None else f" (stretch: {stretch:g}{unit})")
        self.promises.append(Promise(what, text, reach, met, headline=True))


def interleave(candidates: Mapping[str, Round], rounds: int, size: int | None = None) -> list[Figure]:
    """Run ``rounds`` rounds of each candidate, in turns. A round returns its measures."""
    measured: dict[tuple[str, str], list[float]] = {}
    names = list(candidates)
    of_size = "" if size is None else f"{size:,} × "
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            step(f"round {number + 1} of {rounds}, {of_size}{name}")
            gc.collect()  # so that no candidate pays for the garbage of the previous one
            for measure, value in candidates[name]().items():
                measured.setdefault((name, measure), []).append(value)
    order = sorted(measured, key=lambda key: names.index(key[0]))
    return [Figure(*key, tuple(measured[key]), size) for key in order]


def race(
    candidates: Mapping[str, Callable[[], object]], *, rounds: int, pairs: int, servers: ServerMeter | None = None
) -> list[Figure]:
    """Time one pair of operations of each candidate, in microseconds; what it costs the servers, if there are some."""

    def timed(pair: Callable[[], object]) -> Round:
        return lambda: _time(pair, pairs, servers)

    for pair in candidates.values():
        _time(pair, max(1, pairs // 2), None)  # connections, scripts, caches
    return interleave({name: timed(pair) for name, pair in candidates.items()}, rounds)


def _time(pair: Callable[[], object], times: int, servers: ServerMeter | None) -> Mapping[str, float]:
    repeated = range(times)
    if servers is not None:
        servers.start()
    cpu, start = time.process_time(), time.perf_counter()
    for _ in repeated:
        pair()
    elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
    measures = {MICROSECONDS: elapsed / times * 1e6, CLIENT_CPU: cpu / times * 1e6}
    if servers is not None:
        spent = servers.spent()
        measures |= {SERVER_CPU: spent.cpu / times * 1e6, TOTAL_CPU: (cpu + spent.cpu) / times * 1e6}
        measures[COMMANDS] = spent.commands / times
    return measures


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that is not below ``share`` of all values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
