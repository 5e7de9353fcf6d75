"""The matrix as a live picture, drawn by rich."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.cli.ladder import matrix
from holdfast.cli.ladder.verdicts import Cell
from holdfast.cli.ladder.view import View
from holdfast.cli.picture import Picture

_GOOD: Final = "green"
_BAD: Final = "bold red"
_UNEXPECTED: Final = "reverse bold red"


class LiveView(View):
    """Each cell shows its result as text; the color only repeats it."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._utf8 = self._console.encoding.lower().startswith("utf")
        self._picture = Picture(self._console)

    def update(self, cells: Sequence[Cell], running: Cell | None) -> None:
        self._picture.draw(self._content(cells, running))

    def close(self, cells: Sequence[Cell]) -> None:
        self._picture.draw(self._content(cells, None))
        self._picture.leave()
        for note in matrix.notes(cells):
            self._console.print(Text(self._shown(note), "dim"))
        self._console.print(Text(matrix.summary(cells)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._picture.__exit__(kind, error, traceback)

    def _content(self, cells: Sequence[Cell], running: Cell | None) -> RenderableType:
        table = Table(box=None, padding=(0, 1, 0, 0), title="rung × fault" if self._utf8 else "rung x fault")
        table.add_column("", min_width=matrix.LABEL - 1)
        for fault in matrix.faults_of(cells):
            table.add_column("\n".join(fault.heading), min_width=7)
        missing: list[Text] = []
        for row in matrix.in_rungs(cells):
            if all(cell.missing for cell in row):
                missing.append(Text(f"{matrix.label(row[0].rung)} needs {row[0].missing}", "dim"))
            table.add_row(matrix.label(row[0].rung), *(self._cell(cell, running) for cell in row))
        status = "" if running is None else f"{matrix.label(running.rung)}: {running.fault.name} …"
        return Group(table, *missing, Text(self._shown(status), "dim"))

    def _cell(self, cell: Cell, running: Cell | None) -> Text:
        if running is not None and (cell.rung, cell.fault) == (running.rung, running.fault):
            return Text("...", "dim")
        style = "dim"
        if cell.outcomes:
            style = _UNEXPECTED if cell.broken_promises else _GOOD if cell.good else _BAD
        return Text(self._shown(cell.text), style)

    def _shown(self, text: str) -> str:
        return text if self._utf8 else matrix.ascii_only(text)
