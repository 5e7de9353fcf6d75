"""The matrix as a picture for the documents: SVG, with the words in it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

from holdfast.cli.ladder import matrix
from holdfast.cli.ladder.verdicts import FAULTS, Cell

ALTERNATIVE: Final = "Matrix of nine kinds of locks and seven faults; the table below has the same contents"

_LABEL, _COLUMN, _ROW, _HEAD = 150, 92, 30, 52
_FONT: Final = 'font-family="sans-serif" font-size="13"'
#: Fill and text. The text in a cell is complete; its color only repeats it.
_COLORS: Final = {
    "ok": ("#d9f2dd", "#14532d"),
    "lost": ("#fbdcdc", "#7f1d1d"),
    "deleted": ("#fbdcdc", "#7f1d1d"),
    "stuck": ("#fde9c8", "#713f12"),
    None: ("#f3f4f6", "#4b5563"),
}


def svg(cells: Sequence[Cell]) -> str:
    rows = matrix.in_rungs(cells)
    width, height = _LABEL + _COLUMN * len(FAULTS) + 10, _HEAD + _ROW * len(rows) + 10
    named = 'role="img" aria-labelledby="title description"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {named} {_FONT}>',
        '<title id="title">The ladder: rung × fault</title>',
        f'<desc id="description">{escape(_description(rows))}</desc>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for column, fault in enumerate(FAULTS):
        for line, text in enumerate(fault.heading):
            lines.append(_text(_LABEL + (column + 0.5) * _COLUMN, 20 + 16 * line, text, "#111827", anchor="middle"))
    for place, row in enumerate(rows):
        top = _HEAD + place * _ROW
        lines.append(_text(10, top + 19, matrix.label(row[0].rung), "#111827"))
        for column, cell in enumerate(row):
            lines += _cell(_LABEL + column * _COLUMN, top, cell)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _cell(left: float, top: float, cell: Cell) -> list[str]:
    fill, ink = _COLORS[cell.expected]
    # The fault at which the next rung is better has a border.
    border = f' stroke="{ink}" stroke-width="2"' if cell.fault.name == cell.rung.breaks_at else ""
    size = f'width="{_COLUMN - 4}" height="{_ROW - 4}" rx="4"'
    return [
        f'<rect x="{left + 2:g}" y="{top + 2:g}" {size} fill="{fill}"{border}/>',
        _text(left + _COLUMN / 2, top + 19, cell.text, ink, anchor="middle"),
    ]


def _text(x: float, y: float, text: str, ink: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{ink}" text-anchor="{anchor}">{escape(text)}</text>'


def _description(rows: Sequence[Sequence[Cell]]) -> str:
    sentences = []
    for row in rows:
        results = ", ".join(f"{cell.fault.name} {cell.text}" for cell in row)
        sentences.append(f"{matrix.label(row[0].rung)}: {results}.")
    return " ".join(sentences)
