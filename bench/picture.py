"""The figures as a bar chart: a plain SVG that follows the reader's light or dark color scheme."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape

from bench.harness import OURS, Figure
from bench.outcome import Outcome
from bench.report import number

_WIDTH: Final = 860
_LABELS: Final = 330
_BAR: Final = 18
_STEP: Final = 26
_STYLE: Final = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 15px } .dim { fill: #6e7781; font-size: 12px }
  .ours { fill: #0969da } .other { fill: #afb8c1 } .floor { fill: #d8dee4 } line { stroke: #57606a }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .dim { fill: #8b949e } .ours { fill: #58a6ff } .other { fill: #6e7681 }
    .floor { fill: #484f58 } line { stroke: #c9d1d9 }
  }
"""


def draw(outcomes: Iterable[Outcome]) -> str:
    """One panel for each answer that has a measure to draw."""
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
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top}" viewBox="0 0 {_WIDTH} {top}" '
        f'role="img" aria-label="Bar charts of the benchmark">\n<style>{_STYLE}</style>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _panel(title: str, subtitle: str, figures: list[Figure], top: int) -> tuple[list[str], int]:
    parts = [_text(10, top + 14, title, "title"), _text(10, top + 32, subtitle, "dim")]
    # Leave room for the value to the right of the longest bar.
    scale = (_WIDTH - _LABELS - 90) / max(figure.high for figure in figures)
    y = top + 44
    for figure in figures:
        middle = y + _BAR / 2
        low, width, high = (value * scale for value in (figure.low, figure.median, figure.high))
        parts += [
            _text(_LABELS - 8, middle + 4.5, figure.candidate, anchor="end"),
            f'<rect x="{_LABELS}" y="{y}" width="{max(width, 1):.1f}" height="{_BAR}" rx="2" class="{_kind(figure)}"/>',
            f'<line x1="{_LABELS + low:.1f}" x2="{_LABELS + high:.1f}" y1="{middle}" y2="{middle}"/>',
            _text(_LABELS + high + 6, middle + 4.5, number(figure.median)),
        ]
        y += _STEP
    return parts, y - top + 18


def _kind(figure: Figure) -> str:
    if OURS in figure.candidate:
        return "ours"
    return "floor" if figure.candidate.startswith("floor") else "other"


def _text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{escape(content)}</text>'
