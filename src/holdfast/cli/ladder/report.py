"""The result as JSON: one line, for programs and for the page in the documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdfast.cli.ladder.verdicts import FAULTS, RUNGS, Cell, Event, Outcome, as_promised


def encode(cells: Sequence[Cell]) -> str:
    return json.dumps({"as_promised": as_promised(cells), "cells": [_cell(cell) for cell in cells]})


def decode(text: str) -> list[Cell]:
    return [_decoded(facts) for facts in json.loads(text)["cells"]]


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "rung": cell.rung.number,
        "title": cell.rung.title,
        "fault": cell.fault.name,
        "expected": cell.expected,
        "as_promised": not cell.broken_promises if cell.outcomes else None,
        "missing": cell.missing or None,
        "runs": [_run(outcome) for outcome in cell.outcomes],
    }


def _run(outcome: Outcome) -> dict[str, Any]:
    return {
        "verdict": outcome.kind,
        "updates": outcome.updates,
        "lost": outcome.lost,
        "refused": outcome.refused,
        "timeline": [event._asdict() | {"seconds": round(event.seconds, 3)} for event in outcome.timeline],
    }


def _decoded(facts: dict[str, Any]) -> Cell:
    rung = next(rung for rung in RUNGS if rung.number == facts["rung"])
    fault = next(fault for fault in FAULTS if fault.name == facts["fault"])
    outcomes = [
        Outcome(
            run["updates"],
            run["lost"],
            run["verdict"] == "stuck",
            run["verdict"] == "deleted",
            run["refused"],
            [Event(**event) for event in run["timeline"]],
        )
        for run in facts["runs"]
    ]
    return Cell(rung, fault, outcomes, facts["missing"] or "")
