"""The answers as tables, on the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.harness import OURS, Answer, Figure, Promise
from bench.outcome import Outcome

MARKS: Final = {True: ("met", "green"), False: ("missed", "red"), None: ("–", "dim")}


def number(value: float) -> str:
    """With three digits: the measurements are not more precise."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    if len(figure.rounds) == 1:
        return number(figure.median)
    return f"{number(figure.median)} ({number(figure.low)}–{number(figure.high)})"


def pivot(answer: Answer) -> tuple[list[str], list[tuple[str, ...]]]:
    """Candidates down, measures across."""
    measures = list(dict.fromkeys(figure.measure for figure in answer.figures))
    candidates = list(dict.fromkeys(figure.label for figure in answer.figures))
    found = {(figure.label, figure.measure): figure for figure in answer.figures}
    rows = [(name, *(cell(found.get((name, measure))) for measure in measures)) for name in candidates]
    return ["", *measures], rows


def show(outcome: Outcome, console: Console) -> None:
    """Print the answer to one question."""
    console.print()
    console.print(Text(outcome.title, style="bold"))
    answer = outcome.answer
    if answer is None:
        console.print(Text(f"not measured: {outcome.failure}", style="red"))
        return
    console.print(Text(f"{answer.conditions} Meanwhile {outcome.noise}.", style="dim"))
    head, rows = pivot(answer)
    table = Table(box=None, header_style="dim", pad_edge=False)
    for place, title in enumerate(head):
        table.add_column(title, justify="right" if place else "left")
    for row in rows:
        table.add_row(*row, style="bold cyan" if OURS in row[0] else None)
    console.print(table)
    for remark in answer.remarks:
        console.print(Text(remark, style="dim"))


def close(outcomes: Iterable[Outcome], console: Console) -> None:
    """Print the summary of all targets."""
    table = Table(title="In one run, on this machine", title_justify="left", title_style="bold")
    for title in ("what", "measured", "reach", "met"):
        table.add_column(title)
    for promise in promises(outcomes):
        word, style = MARKS[promise.met]
        table.add_row(promise.what, promise.measured, promise.reach, Text(word, style=style))
    console.print()
    console.print(table)


def promises(outcomes: Iterable[Outcome]) -> list[Promise]:
    found: list[Promise] = []
    for outcome in outcomes:
        if outcome.answer is None:
            found.append(Promise(outcome.title, f"not measured: {outcome.failure}"))
        else:
            found += outcome.answer.promises
    return found


def markdown(machine: Mapping[str, str], outcomes: list[Outcome], warning: str) -> str:
    """All of it as one document; ``warning`` is about the noise, if any."""
    lines = ["# Measured", ""]
    lines += [
        "Written by `python -m bench --write`. Candidates take turns in each round. Figures are medians of rounds,",
        "in brackets the lowest and highest round; ratios are of medians, in brackets those within single rounds.",
    ]
    if warning:
        lines += ["", f"**{warning}**"]
    total = sum(outcome.seconds for outcome in outcomes)
    lines += ["", f"The run took {total / 60:.1f} minutes.", ""]
    lines += ["![bar chart of the figures below](results.svg)", "", "![curves](curves.svg)", ""]
    lines += table(["what", "measured", "reach", "met"], _closing(outcomes))
    lines += ["", "## On what", ""]
    lines += table(["", ""], [(name, value) for name, value in machine.items()])
    for outcome in outcomes:
        lines += ["", f"## {outcome.title}", ""]
        answer = outcome.answer
        if answer is None:
            lines.append(f"Not measured: {outcome.failure}")
            continue
        lines += [f"{answer.conditions} Meanwhile {outcome.noise}.", ""]
        lines += table(*pivot(answer))
        for remark in answer.remarks:
            lines += ["", remark]
    return "\n".join(lines) + "\n"


def _closing(outcomes: Iterable[Outcome]) -> list[tuple[str, ...]]:
    return [(one.what, one.measured, one.reach, MARKS[one.met][0]) for one in promises(outcomes)]


def table(head: list[str], rows: Iterable[tuple[str, ...]]) -> list[str]:
    numbers = ["---"] + ["---:" if len(head) > 2 and not head[0] else "---"] * (len(head) - 1)
    return ["| " + " | ".join(row) + " |" for row in (head, numbers, *rows)]
