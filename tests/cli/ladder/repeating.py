"""Repeats cells and compares the outcomes with the promised ones."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from holdfast.cli.ladder.runner import Ladder
from holdfast.cli.ladder.verdicts import FAULTS, RUNGS, Outcome, expected, fault_named

FEW: Final = 3
MANY: Final = 10
#: Runs spend most of their time waiting, so some of them run in parallel.
_BESIDE: Final = 3


def decisive(*numbers: int) -> list[Any]:
    """Returns each rung with the fault that breaks it."""
    chosen = [rung for rung in RUNGS if rung.number in numbers]
    return [pytest.param(rung.number, str(rung.breaks_at), id=f"{rung.number}-{rung.breaks_at}") for rung in chosen]


def others(*numbers: int) -> list[Any]:
    """Returns the other faults that apply to these rungs."""
    return [
        pytest.param(rung.number, fault.name, id=f"{rung.number}-{fault.name}")
        for rung in RUNGS
        if rung.number in numbers
        for fault in FAULTS
        if fault.name != rung.breaks_at and expected(rung, fault) is not None
    ]


def repeated(ladder: Ladder, number: int, fault: str, runs: int) -> list[Outcome]:
    rung = RUNGS[number - 1]
    first = ladder.run(rung, fault_named(fault))  # starts the servers
    with ThreadPoolExecutor(_BESIDE) as pool:
        return [first, *pool.map(lambda _: ladder.run(rung, fault_named(fault)), range(runs - 1))]


def assert_all_as_promised(number: int, fault: str, outcomes: Iterable[Outcome]) -> None:
    promised = expected(RUNGS[number - 1], fault_named(fault))
    for outcome in outcomes:
        assert outcome.kind == promised, "\n".join(map(str, outcome.timeline))
