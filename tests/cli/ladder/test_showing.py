"""The matrix on several kinds of terminal, as text and as JSON; these tests start no process."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from holdfast.cli.ladder import matrix, report
from holdfast.cli.ladder.explain import changes, explained
from holdfast.cli.ladder.live import LiveView
from holdfast.cli.ladder.verdicts import FAULTS, NOT_APPLICABLE, RUNGS, Cell
from holdfast.cli.ladder.view import Plain
from tests.cli.ladder.finished import OUTCOMES, all_cells


def drawn(cells: list[Cell], *, encoding: str = "utf-8", width: int = 80) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    with LiveView(Console(file=file, width=width, force_terminal=True, highlight=False)) as view:
        view.update(cells, cells[0])
        view.close(cells)
    file.seek(0)
    return file.read()


def stripped(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.fixture(autouse=True)
def _a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.parametrize("missing", ["", "ZooKeeper: apt-get install zookeeper"])
def test_live_matrix_fits_into_80_columns_without_truncation(missing: str) -> None:
    text = stripped(drawn(all_cells(missing)))
    lines = re.split(r"[\r\n]+", text)
    assert max(map(len, lines)) <= 80
    for rung in RUNGS:
        (row, *_) = [line for line in reversed(lines) if line.strip().startswith(f"{rung.number} {rung.title}")]
        results = re.findall(r"ok|lost \d/\d\*?|stuck|–|needs", row)
        assert len(results) >= (1 if missing and rung.number == 8 else len(FAULTS))
    assert not missing or missing in text


def test_results_without_color_are_words(monkeypatch: pytest.MonkeyPatch) -> None:
    colors = r"\x1b\[(?:\d+;)*3\dm"
    assert re.search(colors, drawn(all_cells()))
    monkeypatch.setenv("NO_COLOR", "1")
    plain = drawn(all_cells())
    assert not re.search(colors, plain)
    for word in ("ok", "lost 1/2", "lost 2/3*", "stuck", NOT_APPLICABLE):
        assert word in stripped(plain)


def test_ascii_terminal_gets_only_ascii() -> None:
    assert drawn(all_cells(), encoding="ascii").isascii()


def test_plain_text_is_ascii_and_prints_each_row_when_its_rung_is_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cells, view = all_cells("ZooKeeper: apt-get install zookeeper"), Plain()
    view.update(cells, cells[0])
    assert capsys.readouterr().out == matrix.heading(FAULTS) + "\n"
    view.update(cells, cells[7])  # the first cell of rung 2: rung 1 is done
    first = capsys.readouterr().out
    assert first.startswith("1 SETNX ")
    assert first.count("\n") == 1
    view.update(cells, None)
    view.close(cells)
    rest = capsys.readouterr().out
    assert "8 session       needs ZooKeeper: apt-get install zookeeper\n" in rest
    assert "50 of 50 cells came out as promised." in rest
    assert (first + rest).isascii()
    assert max(map(len, (first + rest).splitlines())) <= 80


def test_unexpected_results_are_listed() -> None:
    cells = [Cell(RUNGS[8], FAULTS[4], [OUTCOMES["lost"], OUTCOMES["ok"]])]
    assert "mixed!" in matrix.row(cells)
    (note,) = [note for note in matrix.notes(cells) if "promised" in note]
    assert note == "not as promised: 9 fencing token, freeze: expected ok, 1 of 2 runs differ"
    assert matrix.summary(cells) == "0 of 1 cells came out as promised, 2 runs each."


def test_without_redis_the_output_names_the_engine_of_the_last_rung() -> None:
    cells = [Cell(RUNGS[8], fault, [OUTCOMES["ok"]]) for fault in FAULTS[:5]]
    cells += [Cell(RUNGS[8], fault, missing="redis-server on PATH") for fault in FAULTS[5:]]
    assert any("embedded engine (SQLite)" in note and "redis-server on PATH" in note for note in matrix.notes(cells))


def test_json_round_trip() -> None:
    cells = all_cells("ZooKeeper")
    text = report.encode(cells)
    assert "\n" not in text
    assert report.encode(report.decode(text)) == text
    assert [cell.text for cell in report.decode(text)] == [cell.text for cell in cells]


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.title)
def test_explanation_has_source_timeline_and_next_step(rung: object) -> None:
    cell = next(cell for cell in all_cells() if cell.rung is rung and cell.outcomes)
    text = "\n".join(explained(cell))
    assert "class Lock:" in text
    assert "0.250 s  B       writes 1" in text
    assert changes(cell.rung) in text
    assert bool(changes(cell.rung)) == (cell.rung.number < 9)
