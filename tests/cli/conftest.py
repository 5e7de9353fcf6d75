"""Fixtures that run the doctor and the other commands without settings from the environment."""

from __future__ import annotations

import os

import pytest

from tests.cli.command import Run
from tests.cli.doctor import Doctor


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(capsys)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    return Run(capsys)
