"""Finished cells, made without running a ladder."""

from __future__ import annotations

from holdfast.cli.ladder.verdicts import FAULTS, RUNGS, Cell, Event, Outcome, expected

TIMELINE = (Event(0.1, "A", "reads 0"), Event(0.25, "B", "writes 1"))
OUTCOMES = {
    "ok": Outcome(2, 0, timeline=TIMELINE),
    "lost": Outcome(2, 1, timeline=TIMELINE),
    "deleted": Outcome(3, 2, deleted=True, timeline=TIMELINE),
    "stuck": Outcome(0, 0, stuck=True, timeline=TIMELINE),
}


def all_cells(missing: str = "") -> list[Cell]:
    """Returns the cells of a run in which every promise was kept; with ``missing``, ZooKeeper was not available."""
    cells = []
    for rung in RUNGS:
        for fault in FAULTS:
            kind = expected(rung, fault)
            lacks = missing if rung.number == 8 else ""
            cells.append(Cell(rung, fault, [OUTCOMES[kind]] if kind and not lacks else [], lacks))
    return cells
