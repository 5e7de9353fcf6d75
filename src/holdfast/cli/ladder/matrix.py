"""The matrix as text, rung by rung: 79 columns, plain ASCII. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.cli.ladder.verdicts import FAULTS, LEGEND, NOT_APPLICABLE, Cell, Fault, Rung

LABEL: Final = 16
#: Columns that may contain "lost 2/3*" are wider.
_WIDTHS: Final = {"slow-holder": 10, "check-then-delete": 10, "freeze": 9, "failover": 9, "redlock-pause": 8}
_NARROW: Final = 8


def label(rung: Rung) -> str:
    return f"{rung.number} {rung.title}"


def heading(faults: Sequence[Fault]) -> str:
    lines = [
        " " * LABEL + "".join(fault.heading[line].ljust(_WIDTHS.get(fault.name, _NARROW)) for fault in faults)
        for line in (0, 1)
    ]
    return "\n".join(line.rstrip() for line in lines)


def row(cells: Sequence[Cell]) -> str:
    """The cells of one rung."""
    rung = cells[0].rung
    if all(cell.missing for cell in cells):
        return f"{label(rung):{LABEL}}needs {cells[0].missing}"
    texts = (ascii_only(cell.text).ljust(_WIDTHS.get(cell.fault.name, _NARROW)) for cell in cells)
    return f"{label(rung):{LABEL}}{''.join(texts)}".rstrip()


def ascii_only(text: str) -> str:
    return text.replace(NOT_APPLICABLE, "-").replace("…", "...")


def notes(cells: Sequence[Cell]) -> list[str]:
    """The text below the matrix: the legend, missing servers, and unexpected results."""
    found = [LEGEND]
    embedded = [cell for cell in cells if cell.rung.number == 9 and not cell.missing]
    if any(cell.missing and cell.rung.number == 9 for cell in cells):
        where = "Rung 9 ran on the embedded engine (SQLite)" if embedded else "Rung 9 was not run"
        found.append(f"{where}; its other faults need {next(cell.missing for cell in cells if cell.missing)}")
    return found + [
        f"not as promised: {label(cell.rung)}, {cell.fault.name}: expected {cell.expected}, "
        f"{cell.broken_promises} of {len(cell.outcomes)} runs differ"
        for cell in cells
        if cell.broken_promises
    ]


def summary(cells: Sequence[Cell]) -> str:
    runs = [cell for cell in cells if cell.outcomes]
    kept = sum(not cell.broken_promises for cell in runs)
    count = max((len(cell.outcomes) for cell in runs), default=0)
    each = f", {count} runs each" if count > 1 else ""
    return f"{kept} of {len(runs)} cells came out as promised{each}."


def in_rungs(cells: Sequence[Cell]) -> list[list[Cell]]:
    rows: dict[int, list[Cell]] = {}
    for cell in cells:
        rows.setdefault(cell.rung.number, []).append(cell)
    return list(rows.values())


def faults_of(cells: Sequence[Cell]) -> list[Fault]:
    named = {cell.fault.name for cell in cells}
    return [fault for fault in FAULTS if fault.name in named]
