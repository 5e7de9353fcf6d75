"""No test is skipped in silence: a skip that ``tests/skips.toml`` does not list fails the run."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import pytest

_LISTED: Final = tomllib.loads((Path(__file__).parents[1] / "skips.toml").read_text("utf-8")).get("skip", [])


class Skips:
    """A plugin. It goes by the reports, which also reach the process that gathers those of others."""

    def __init__(self) -> None:
        self._skipped: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:  # a whole module: importorskip and the like
            self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        self._skipped[report.nodeid] = reason.removeprefix("Skipped: ")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        unlisted = any(not _is_listed(*skip) for skip in self._skipped.items())
        if unlisted and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for title, listed in (("SKIPPED", True), ("SKIPPED, BUT NOT LISTED IN tests/skips.toml: FAILED", False)):
            skips = [skip for skip in self._skipped.items() if _is_listed(*skip) is listed]
            if skips:
                terminalreporter.section(f"{title} ({len(skips)})", yellow=listed, red=not listed)
                for test, reason in skips:
                    terminalreporter.line(f"{test}: {reason}")


def _is_listed(test: str, reason: str) -> bool:
    return any(fnmatchcase(test, entry["test"]) and fnmatchcase(reason, entry["reason"]) for entry in _LISTED)
