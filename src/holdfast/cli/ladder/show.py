"""Run the selected cells, and show each when it is done."""

from __future__ import annotations

from holdfast.cli.ladder.runner import Ladder
from holdfast.cli.ladder.verdicts import FAULTS, RUNGS, Cell
from holdfast.cli.ladder.view import choose


def show(rung: int | None, fault: str | None, runs: int, *, quiet: bool) -> list[Cell]:
    """All cells of one rung, of one fault, or of both (None: of all), in the order of the matrix."""
    cells = [
        Cell(each, other)
        for each in RUNGS
        if rung in (None, each.number)
        for other in FAULTS
        if fault in (None, other.name)
    ]
    with choose(quiet=quiet) as view, Ladder() as ladder:
        for place, cell in enumerate(cells):
            view.update(cells, cell)
            cells[place] = ladder.cell(cell.rung, cell.fault, runs)
        view.update(cells, None)
        view.close(cells)
    return cells
