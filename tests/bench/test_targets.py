"""Ratios and targets: what is printed as met or missed, and what happens when a peer is missing."""

from __future__ import annotations

import sys
from functools import partial

import pytest

from bench import peers
from bench.harness import Answer, Figure, interleave, percentile


@pytest.fixture
def answer() -> Answer:
    return Answer(
        "",
        [
            Figure("ours", "µs", (10.0, 12.0, 50.0)),
            Figure("theirs", "µs", (20.0, 24.0, 25.0)),
            Figure("ours", "µs", (1.0,), 8),
        ],
    )


def test_ratio_is_of_medians_and_its_spread_of_single_rounds(answer: Answer) -> None:
    ratio = answer.ratio("ours", "theirs", "µs")
    assert ratio == (0.5, 0.5, 2.0)
    assert str(ratio) == "0.5× (0.5–2)"


@pytest.mark.parametrize("limit, met", [(0.5, True), (0.49, False)], ids=["reached exactly", "missed"])
def test_target_is_met_up_to_its_limit(answer: Answer, limit: float, met: bool) -> None:
    answer.at_most("cost", answer.ratio("ours", "theirs", "µs"), limit, 0.25)
    assert answer.promises[-1].met is met
    assert answer.promises[-1].reach == f"≤ {limit}× (stretch: 0.25×)"


def test_target_where_more_is_better(answer: Answer) -> None:
    answer.at_least("rate", 3.0, 2, unit=" a second")
    answer.at_least("rate", 1.0, 2)
    assert [one.met for one in answer.promises] == [True, False]
    assert answer.promises[0].measured == "3 a second"


def test_target_against_a_missing_peer_is_neither_met_nor_missed(answer: Answer) -> None:
    ratio = answer.ratio("ours", "absent", "µs")
    assert ratio is None
    answer.at_most("cost", ratio, 1)
    answer.compare("cost", ratio)
    assert [(one.met, one.measured) for one in answer.promises] == [(None, "not measured")] * 2


def test_figure_of_a_size_is_not_the_one_without(answer: Answer) -> None:
    assert answer.figure("ours", "µs", 8).median == 1.0
    assert answer.figure("ours", "µs").median == 12.0
    with pytest.raises(LookupError):
        answer.figure("ours", "µs", 9)


def test_missing_peer_is_named_and_the_others_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bench.peers.kazoo", None)  # what Python does for a module that cannot be imported
    found, missing = peers.present((peers.KAZOO, peers.HOLDFAST))
    assert found == [peers.HOLDFAST]
    assert len(missing) == 1
    assert missing[0].startswith("Not measured: kazoo Lock; kazoo cannot be imported")


def test_candidates_take_turns_and_each_round_begins_with_another() -> None:
    order: list[str] = []

    def round_of(name: str) -> dict[str, float]:
        order.append(name)
        return {"calls": len(order)}

    figures = interleave({name: partial(round_of, name) for name in "abc"}, rounds=3, size=7)
    assert "".join(order) == "abcbcacab"
    assert [(figure.label, figure.rounds) for figure in figures] == [
        ("7 × a", (1, 6, 8)),
        ("7 × b", (2, 4, 9)),
        ("7 × c", (3, 5, 7)),
    ]


def test_percentile_of_many_and_of_one() -> None:
    assert percentile(range(100), 0.99) == 99
    assert percentile(range(1000), 0.5) == 500
    assert percentile([7.0], 0.99) == 7.0
