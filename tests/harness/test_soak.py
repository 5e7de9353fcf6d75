"""Cases for ``make soak``: each has a smaller case in ``make test``, and a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.soak import broken_soaks
from tests.support.source_files import TESTS


def test_every_soak_case_has_a_smaller_case_and_a_reason() -> None:
    files = list(TESTS.rglob("test_*.py"))
    assert [complaint for file in files for complaint in broken_soaks(file)] == []
    assert sum("soak(" in file.read_text("utf-8") for file in files) > 3


GOOD = "@pytest.mark.parametrize('runs', [1, soak(9, reason='shows a slow leak')])\ndef test(runs): ..."


@pytest.mark.parametrize(
    "source, complaint",
    [
        ("@pytest.mark.parametrize('runs', [soak(9, reason='shows a slow leak')])\ndef test(runs): ...", "no smaller"),
        ("CASE = soak(9, reason='shows a slow leak')", "no smaller"),
        ("@pytest.mark.parametrize('runs', [1, soak(9, reason='')])\ndef test(runs): ...", "no reason"),
        ("@pytest.mark.soak\ndef test(): ...", "in place of the mark"),
        (GOOD, None),
    ],
)
def test_a_soak_case_alone_or_without_a_reason_is_reported(tmp_path: Path, source: str, complaint: str | None) -> None:
    (tmp_path / "test_x.py").write_text(source, "utf-8")
    reports = list(broken_soaks(tmp_path / "test_x.py"))
    assert len(reports) == (complaint is not None)
    assert complaint is None or complaint in reports[0]
