"""Runs the doctor in this process and parses its findings."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from holdfast.cli.main import main


@dataclass(frozen=True)
class Diagnosis:
    """The output of ``holdfast doctor URL --json``."""

    code: int
    out: str
    err: str

    @property
    def findings(self) -> list[dict[str, str]]:
        report = json.loads(self.out)
        assert report["exit_code"] == self.code
        found: list[dict[str, str]] = report["findings"]
        return found

    def of(self, check: str, node: str | None = None) -> list[dict[str, str]]:
        """Returns the findings of one check, optionally of one node."""
        return [one for one in self.findings if one["check"] == check and node in (None, one["node"])]

    def level(self, check: str, node: str | None = None) -> str:
        """Returns the level of a check that has exactly one finding."""
        (finding,) = self.of(check, node)
        return finding["level"]

    def worse_than_ok(self) -> dict[str, str]:
        """Returns each check that complains, with its worst level."""
        return {
            one["check"]: one["level"]
            for level in ("notice", "warning", "problem")
            for one in self.findings
            if one["level"] == level
        }


class Doctor:
    """``doctor(url)``."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *url: str) -> Diagnosis:
        self._capsys.readouterr()
        code = main(["doctor", *url, "--json"])
        return Diagnosis(code, *self._capsys.readouterr())
