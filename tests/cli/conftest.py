"""The doctor, ready to be asked."""

from __future__ import annotations

import pytest

from tests.cli.doctor import Doctor


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(capsys)
