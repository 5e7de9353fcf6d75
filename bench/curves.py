"""Measures over the number of tasks, processes or leases, on logarithmic axes: one panel for each curve."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from bench.harness import Curve, Figure
from bench.outcome import Outcome
from bench.report import number
from bench.svg import WIDTH, document, kind_of, text

_COLUMNS: Final = 2
_PANEL: Final = WIDTH // _COLUMNS
_PLOT_WIDTH: Final = _PANEL - 90
_PLOT_HEIGHT: Final = 170
_LEFT: Final = 64
_LEGEND_ROW: Final = 18


def draw(outcomes: Iterable[Outcome]) -> str:
    panels = [
        (outcome.title, curve, [figure for figure in outcome.answer.figures if figure.measure == curve.measure])
        for outcome in outcomes
        if outcome.answer is not None
        for curve in outcome.answer.curves
    ]
    body: list[str] = []
    top = 10.0
    for start in range(0, len(panels), _COLUMNS):
        row = panels[start : start + _COLUMNS]
        for column, (title, curve, figures) in enumerate(row):
            body += _panel(title, curve, figures, column * _PANEL, top)
        top += max(_height(figures) for _, _, figures in row)
    return document(body, top, "Curves of the benchmark")


def _candidates(figures: list[Figure]) -> list[str]:
    """The candidates that were measured at several sizes."""
    names = [figure.candidate for figure in figures]
    return [name for name in dict.fromkeys(names) if names.count(name) > 1]


def _height(figures: list[Figure]) -> float:
    return 44 + _PLOT_HEIGHT + 44 + _LEGEND_ROW * len(_candidates(figures)) + 16


class _Axis:
    """A logarithmic axis from the decade below the least value to the greatest one."""

    def __init__(self, values: Iterable[float], start: float, length: float) -> None:
        known = list(values)
        self.low = math.floor(math.log10(min(known)))
        self._high = max(math.log10(max(known)), self.low + 0.3)
        self._start, self._length = start, length

    def place(self, value: float) -> float:
        return self._start + (math.log10(value) - self.low) / (self._high - self.low) * self._length

    def decades(self) -> list[float]:
        return [10.0**power for power in range(self.low, math.floor(self._high) + 1)]


def _panel(title: str, curve: Curve, figures: list[Figure], left: float, top: float) -> list[str]:
    names = _candidates(figures)
    figures = [figure for figure in figures if figure.candidate in names and figure.size is not None]
    base = top + 44 + _PLOT_HEIGHT
    across = _Axis((float(figure.size or 1) for figure in figures), left + _LEFT, _PLOT_WIDTH)
    up = _Axis((figure.median for figure in figures), base, -_PLOT_HEIGHT)
    parts = [text(left + 10, top + 14, title.partition(",")[0].partition(":")[0] + f": {curve.measure}", "title")]
    parts.append(text(left + 10, top + 32, f"by the number of {curve.axis}; {curve.better} is better", "dim"))
    for value in up.decades():
        y = up.place(value)
        parts.append(
            f'<line x1="{left + _LEFT}" x2="{left + _LEFT + _PLOT_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        )
        parts.append(text(left + _LEFT - 8, y + 4, number(value), "dim", "end"))
    sizes = sorted({figure.size for figure in figures if figure.size is not None})
    parts += [text(across.place(size), base + 18, f"{size:,}", "dim", "middle") for size in sizes]
    others = [name for name in names if kind_of(name) == "other"]
    for place, name in enumerate(names):
        style = kind_of(name) if name not in others else f"p{others.index(name) % 3}"
        points = [
            (across.place(one.size), up.place(one.median)) for one in figures if one.candidate == name and one.size
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        row = base + 40 + place * _LEGEND_ROW
        parts += [
            f'<polyline points="{path}" class="{style}"/>',
            f'<polyline points="{left + _LEFT},{row} {left + _LEFT + 26},{row}" class="{style}"/>',
            text(left + _LEFT + 34, row + 4, name, "dim"),
        ]
    return parts
