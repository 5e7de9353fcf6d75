"""What a run writes: tables, pictures and the README's section."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from bench import bars, curves, readme, report
from bench.harness import Answer, Curve, Figure, Scale
from bench.machine import Noise
from bench.outcome import Outcome, ask
from tests.docs.markdown import ROOT

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def outcomes() -> list[Outcome]:
    answer = Answer(
        "One & only.",
        [
            Figure(name, "µs", (float(size), 2.0 * size), size)
            for size in (1, 10, 100)
            for name in ("holdfast", "floor: none", "other < third")
        ],
        remarks=["Not measured: kazoo Lock; kazoo cannot be imported."],
        drawn=("µs", "less"),
        curves=[Curve("µs", "tasks", "less")],
    )
    answer.at_most("pair: against the floor", answer.ratio("holdfast", "floor: none", "µs", 10), 1.7)
    answer.promise("lost", "0", "0", True)
    failed = Outcome("failed", "Failed", Noise(0.0, 0.0), 1.0, failure="OSError: no server")
    return [Outcome("tasks", "Redis: tasks", Noise(0.0, 0.0), 60.0, answer), failed]


def test_tables_have_each_size_each_remark_and_each_failure(outcomes: list[Outcome]) -> None:
    text = report.markdown({"cpu": "fast"}, outcomes, "")
    assert "| 100 × holdfast | 150 (100–200) |" in text
    assert "kazoo cannot be imported" in text
    assert "Not measured: OSError: no server" in text
    assert "| pair: against the floor | 1× (1–1) | ≤ 1.7× | met |" in text


def test_bars_and_curves_are_pictures_of_every_candidate(outcomes: list[Outcome]) -> None:
    drawn_bars, drawn_curves = (ElementTree.fromstring(module.draw(outcomes)) for module in (bars, curves))
    assert len(drawn_bars.findall(f"{SVG}rect")) == 9
    lines = [each for each in drawn_curves.findall(f"{SVG}polyline") if len(each.attrib["points"].split()) == 3]
    assert len(lines) == 3
    texts = {each.text for each in drawn_curves.findall(f"{SVG}text")}
    assert {"holdfast", "floor: none", "other < third", "1", "10", "100"} <= texts


def test_curve_that_grows_rises_in_the_picture(outcomes: list[Outcome]) -> None:
    drawn = ElementTree.fromstring(curves.draw(outcomes))
    points = next(each.attrib["points"] for each in drawn.findall(f"{SVG}polyline"))
    places = [tuple(map(float, point.split(","))) for point in points.split()]
    assert places == sorted(places)  # to the right
    assert [y for _, y in places] == sorted((y for _, y in places), reverse=True)  # and up


def test_readme_shows_the_measured_headlines_of_a_run(outcomes: list[Outcome]) -> None:
    text = readme.replaced((ROOT / "README.md").read_text("utf-8"), readme.section(outcomes, "Busy."))
    assert "| pair: against the floor | 1× (1–1) |\n" in text
    assert "| lost |" not in text
    assert "**Busy.**" in text
    assert text.count("## Documents") == 1
    assert readme.replaced(text, readme.section(outcomes, "Busy.")) == text


def test_readme_without_its_comments_is_refused() -> None:
    with pytest.raises(ValueError, match="no comments"):
        readme.replaced("# other\n", "new")


def test_a_question_is_answered_by_a_real_run() -> None:
    outcome = ask("overhead", Scale(quick=True))
    assert outcome.answer is not None, outcome.failure
    assert outcome.answer.promises[0].what.startswith("memory: pair")
    assert all(value > 0 for figure in outcome.answer.figures for value in figure.rounds)
