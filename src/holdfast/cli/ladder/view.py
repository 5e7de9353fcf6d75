"""How the matrix is shown: a live picture on a terminal, rows of text elsewhere, nothing with --json."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from holdfast.cli.ladder import matrix
from holdfast.cli.ladder.verdicts import Cell
from holdfast.cli.output import write_result
from holdfast.cli.terminal import takes_a_picture


class View:
    """Shows nothing. Subclasses are called after each change and decide what to show."""

    def update(self, cells: Sequence[Cell], running: Cell | None) -> None:
        """``cells``: the whole matrix, in order; cells that have not run yet are empty. ``running``: one of them."""

    def close(self, cells: Sequence[Cell]) -> None:
        """All cells are done."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Restore the terminal."""


class Plain(View):
    """The heading first, then each row when its rung is done."""

    def __init__(self) -> None:
        self._rows = -1

    def update(self, cells: Sequence[Cell], running: Cell | None) -> None:
        if self._rows < 0:
            write_result(matrix.heading(matrix.faults_of(cells)))
            self._rows = 0
        rungs = matrix.in_rungs(cells)
        done = len(rungs) if running is None else [cells[0].rung for cells in rungs].index(running.rung)
        for row in rungs[self._rows : done]:
            write_result(matrix.row(row))
        self._rows = done

    def close(self, cells: Sequence[Cell]) -> None:
        write_result("")
        for note in matrix.notes(cells):
            write_result(matrix.ascii_only(note))
        write_result(matrix.summary(cells))


def choose(*, quiet: bool) -> View:
    if quiet:
        return View()
    if not takes_a_picture("holdfast ladder"):
        return Plain()
    from holdfast.cli.ladder.live import LiveView

    return LiveView()
