"""``--explain``: a rung's source, what happened in a run, and what the next rung changes."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterator, Sequence
from importlib import resources

from holdfast.cli.ladder.verdicts import RUNGS, Cell, Event, Rung


def source(rung: Rung) -> str:
    return (resources.files("holdfast.cli.ladder.rungs") / f"{rung.module}.py").read_text("utf-8")


def purpose(rung: Rung) -> str:
    """The first sentence of its source."""
    return source(rung).split('"""')[1]


def next_rung(rung: Rung) -> Rung | None:
    return next((each for each in RUNGS if each.number == rung.number + 1), None)


def changes(rung: Rung) -> str:
    """The difference to the next rung, without its head; empty for the last one."""
    following = next_rung(rung)
    if following is None:
        return ""
    lines = difflib.unified_diff(source(rung).splitlines(), source(following).splitlines(), lineterm="", n=1)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def timeline(events: Sequence[Event]) -> str:
    return "\n".join(f"{event.seconds:7.3f} s  {event.actor:6}  {event.text}" for event in events)


def explained(cell: Cell) -> Iterator[str]:
    """Paragraphs for a terminal."""
    rung = cell.rung
    yield f"--- rung {rung.number}, {rung.title}: {rung.module}.py"
    yield source(rung).rstrip()
    yield f"--- what happened: {cell.fault.name}"
    yield textwrap.fill(cell.fault.what, 79)
    if cell.outcomes:
        yield timeline(cell.outcomes[0].timeline)
    elif cell.missing:
        yield f"not run: needs {cell.missing}"
    yield textwrap.fill(f"{'What is wrong' if rung.breaks_at else 'What is left'}: {rung.problem}", 79)
    following = next_rung(rung)
    if following is not None:
        yield f"--- what rung {following.number}, {following.title}, changes"
        yield changes(rung)
