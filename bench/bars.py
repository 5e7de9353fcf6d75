"""The figures as bars: one panel for each answer that has a measure to draw."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bench.harness import Figure
from bench.outcome import Outcome
from bench.report import number
from bench.svg import WIDTH, document, kind_of, text

_LABELS: Final = 330
_BAR: Final = 18
_STEP: Final = 26


def draw(outcomes: Iterable[Outcome]) -> str:
    body: list[str] = []
    top = 10
    for outcome in outcomes:
        if outcome.answer is None or outcome.answer.drawn is None:
            continue
        measure, better = outcome.answer.drawn
        figures = [figure for figure in outcome.answer.figures if figure.measure == measure]
        subtitle = f"{measure}; {better} is better; the line spans the rounds"
        panel, height = _panel(outcome.title, subtitle, figures, top)
        body += panel
        top += height
    return document(body, top, "Bar charts of the benchmark")


def _panel(title: str, subtitle: str, figures: list[Figure], top: int) -> tuple[list[str], int]:
    parts = [text(10, top + 14, title, "title"), text(10, top + 32, subtitle, "dim")]
    # Leave room for the value to the right of the longest bar.
    scale = (WIDTH - _LABELS - 90) / max(figure.high for figure in figures)
    y = top + 44
    for figure in figures:
        middle = y + _BAR / 2
        low, width, high = (value * scale for value in (figure.low, figure.median, figure.high))
        kind = kind_of(figure.candidate)
        parts += [
            text(_LABELS - 8, middle + 4.5, figure.label, anchor="end"),
            f'<rect x="{_LABELS}" y="{y}" width="{max(width, 1):.1f}" height="{_BAR}" rx="2" class="{kind}"/>',
            f'<line x1="{_LABELS + low:.1f}" x2="{_LABELS + high:.1f}" y1="{middle}" y2="{middle}"/>',
            text(_LABELS + high + 6, middle + 4.5, number(figure.median)),
        ]
        y += _STEP
    return parts, y - top + 18
