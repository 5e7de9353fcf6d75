"""The documentation page matches the code; only its times come from a run."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from holdfast.cli.ladder.explain import changes
from holdfast.cli.ladder.page import page
from holdfast.cli.ladder.verdicts import FAULTS, NOT_APPLICABLE, RUNGS, Rung, expected
from tests.cli.ladder.finished import all_cells
from tests.docs.markdown import ROOT, blocks, tables

PAGE = ROOT / "docs" / "concepts" / "ladder.md"
TEXT = PAGE.read_text("utf-8")
REMEDY = "holdfast ladder --json | python -m holdfast.cli.ladder.page docs/concepts/ladder.md"


def kind(text: str) -> str | None:
    if text == NOT_APPLICABLE:
        return None
    return "deleted" if text.endswith("*") else text.split()[0]


def test_page_matrix_matches_the_expected_results() -> None:
    (table,) = [rows for rows in tables(PAGE) if rows[0][0] == "rung"]
    assert [row[0] for row in table[1:]] == [f"{rung.number} {rung.title}" for rung in RUNGS]
    for rung, row in zip(RUNGS, table[1:], strict=True):
        assert [kind(text) for text in row[1:]] == [expected(rung, fault) for fault in FAULTS], REMEDY


def test_page_lists_every_fault() -> None:
    (table,) = [rows for rows in tables(PAGE) if rows[0][0] == "fault"]
    assert [row[0].strip("`") for row in table[1:]] == [fault.name for fault in FAULTS]
    assert [row[1] for row in table[1:]] == [fault.what for fault in FAULTS], REMEDY


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.title)
def test_page_shows_problem_timeline_and_next_change_of_each_rung(rung: Rung) -> None:
    section = TEXT.partition(f"## Rung {rung.number}: {rung.title}\n")[2].partition("\n## ")[0]
    assert rung.problem in section, REMEDY
    assert f"`{rung.breaks_at or 'freeze'}`" in section
    assert f"```text\n{changes(rung)}\n```" in section or rung.number == 9, REMEDY
    assert "  result  " in section
    assert "fault   A " in section or rung.breaks_at == "failover"


def test_page_text_matches_the_generator() -> None:
    """Compares the text around the timelines and counts."""
    fresh = page(all_cells(), "ladder.svg")
    assert TEXT.partition("\n![")[0] == fresh.partition("\n![")[0], REMEDY
    assert TEXT.partition("## How this page is made")[2] == fresh.partition("## How this page is made")[2], REMEDY
    assert len(blocks(PAGE)) == 2 + 9 + 8


def test_picture_has_a_text_description() -> None:
    root = ElementTree.parse(PAGE.with_suffix(".svg")).getroot()
    name = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    description = root.findtext(f"{name}desc") or ""
    shown = {element.text for element in root.iter(f"{name}text")}
    for rung in RUNGS:
        assert f"{rung.number} {rung.title}" in shown
        assert f"{rung.number} {rung.title}: {FAULTS[0].name} " in description
    assert {"ok", "stuck", "lost 1/2", NOT_APPLICABLE} <= shown


def test_incomplete_run_writes_no_page() -> None:
    module = [sys.executable, "-m", "holdfast.cli.ladder.page", "/nonexistent/page.md"]
    done = subprocess.run(module, input='{"cells": []}', capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr.startswith("the page needs a run of all cells")
