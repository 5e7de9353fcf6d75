"""Each decision record has a status and a date, and is in the index with both."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.markdown import ROOT, shown, tables

FOLDER: Final = ROOT / "docs" / "adr"
RECORDS: Final = sorted(FOLDER.glob("[0-9]*.md"))
_HEADER: Final = re.compile(
    r"# (?P<number>\d{4}): (?P<title>.+)\n\nStatus: (?P<status>proposed|accepted|superseded) · Date: (?P<date>\S+)\n\n"
)


def header(text: str) -> re.Match[str]:
    """The first lines of a record: number, title, status, date."""
    found = _HEADER.match(text)
    assert found is not None, "a record begins with '# NNNN: title' and 'Status: … · Date: YYYY-MM-DD'"
    datetime.date.fromisoformat(found["date"])
    return found


@pytest.mark.parametrize("path", RECORDS, ids=shown)
def test_a_record_has_a_status_a_date_and_the_number_of_its_file(path: Path) -> None:
    assert path.name.startswith(header(path.read_text("utf-8"))["number"] + "-")


def test_the_index_lists_every_record_with_its_status_and_date() -> None:
    (table,) = tables(FOLDER / "README.md")
    expected = []
    for path in RECORDS:
        found = header(path.read_text("utf-8"))
        link = f"[{found['title']}]({path.name})"
        expected.append([str(int(found["number"])), link, found["status"], found["date"]])
    assert table[1:] == expected
    assert [row[0] for row in expected] == [str(number) for number in range(1, len(RECORDS) + 1)]


@pytest.mark.parametrize(
    "text",
    [
        "# 0001: A title\n\n## Context\n",
        "# 0001: A title\n\nStatus: accepted\n\n",
        "# 0001: A title\n\nStatus: accepted · Date: soon\n\n",
        "# 0001: A title\n\nStatus: done · Date: 2026-11-15\n\n",
    ],
)
def test_a_record_without_a_status_or_a_date_is_noticed(text: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        header(text)
