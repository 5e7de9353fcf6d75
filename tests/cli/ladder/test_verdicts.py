"""The expected results: the table is complete, and every rung fixes the fault that breaks the rung below."""

from __future__ import annotations

from itertools import pairwise

import pytest

from holdfast.cli.ladder.explain import source
from holdfast.cli.ladder.lines import named_lines
from holdfast.cli.ladder.verdicts import (
    EXPECTED,
    FAULTS,
    RUNGS,
    Cell,
    Outcome,
    Rung,
    as_promised,
    expected,
    fault_named,
    place_of,
)


def test_every_rung_and_fault_pair_has_an_expected_result() -> None:
    assert [rung.number for rung in RUNGS] == list(EXPECTED) == list(range(1, 10))
    assert {len(row) for row in EXPECTED.values()} == {len(FAULTS)} == {7}


@pytest.mark.parametrize("lower, higher", list(pairwise(RUNGS)), ids=lambda rung: rung.title)
def test_each_rung_breaks_at_its_fault_and_the_next_rung_survives_it(lower: Rung, higher: Rung) -> None:
    fault = fault_named(str(lower.breaks_at))
    order = ("ok", "lost", "deleted", "stuck")
    before, after = expected(lower, fault), expected(higher, fault)
    assert before not in (None, "ok")
    assert after is not None
    assert before is not None
    assert order.index(after) < order.index(before)


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.title)
def test_rung_survives_every_fault_fixed_by_the_rungs_below(rung: Rung) -> None:
    last_to_break = {str(each.breaks_at): each.number for each in RUNGS if each.breaks_at}
    mended = [name for name, number in last_to_break.items() if number < rung.number]
    assert {expected(rung, fault_named(name)) for name in mended} <= {"ok"}


def test_no_fault_breaks_the_last_rung() -> None:
    assert RUNGS[-1].breaks_at is None
    assert set(EXPECTED[9]) == {"ok"}


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.title)
def test_rung_is_short_and_marks_the_lines_where_faults_are_injected(rung: Rung) -> None:
    text = source(rung)
    assert len(text.splitlines()) <= 60
    names = [line.name for line in named_lines(text).values()]
    assert len(names) == len(set(names))
    assert set(names) - {"checked"} == {"busy", "taken", "delete"}
    assert ("checked" in names) == (expected(rung, fault_named("redlock-pause")) is not None)


@pytest.mark.parametrize(
    "outcome, kind, text",
    [
        (Outcome(2, 0), "ok", "ok"),
        (Outcome(2, 1), "lost", "lost 1/2"),
        (Outcome(3, 2, deleted=True), "deleted", "lost 2/3*"),
        (Outcome(0, 0, stuck=True), "stuck", "stuck"),
    ],
)
def test_outcome_has_one_verdict(outcome: Outcome, kind: str, text: str) -> None:
    assert (outcome.kind, outcome.text) == (kind, text)


def cell(*outcomes: Outcome, number: int = 3, fault: str = "freeze") -> Cell:
    return Cell(RUNGS[number - 1], fault_named(fault), outcomes)


def test_surviving_the_breaking_fault_is_an_unexpected_result() -> None:
    survived = cell(Outcome(2, 1), Outcome(2, 0))
    assert (survived.broken_promises, survived.text) == (1, "mixed!")
    assert not as_promised([cell(Outcome(2, 1)), survived])
    assert not as_promised([cell(Outcome(2, 1), number=9)])


def test_cell_that_could_not_run_is_not_an_unexpected_result() -> None:
    assert as_promised([Cell(RUNGS[7], FAULTS[0], missing="ZooKeeper")])


def test_without_redis_only_the_last_rung_has_a_substitute_engine() -> None:
    places = {(rung.number, place_of(rung, fault, with_redis=False)) for rung in RUNGS for fault in FAULTS}
    assert {number for number, place in places if place == "embedded"} == {9}
    assert {number for number, place in places if place == "zookeeper"} == {8}
