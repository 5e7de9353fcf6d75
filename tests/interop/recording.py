"""What the tests of this folder have shown, as data: ``results.json``, and the tables in the documents made from it.

A test says what it shows::

    @pytest.mark.interop("RLock", "exclusion")
    @pytest.mark.interop(JAVA, "wake-ups", direction=TO_PYTHON)      # a mapping: of the test's parameter ``kind``
    @pytest.mark.interop("RFairLock", "order of grants", verdict=UNORDERED)

It may have several such marks; ``shows(kinds, …)`` sets one for each of several kinds. The peer and its version are the
test's parameter ``redisson_jars``, or its module has ``PEER = ("Curator", "5.9.0")``. A property is recorded if all
tests that show it have passed.

``make interop ARGS=--write-results`` adds what was shown, if nothing has failed, and writes the tables. To drop what is
not shown any more, delete the peer's rows first. ``python -m tests.interop.recording`` writes the tables alone. Each
stands in a document between ``<!-- interop results: Redisson -->`` and ``<!-- end of interop results -->``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pytest

T = TypeVar("T", bound=Callable[..., Any])

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = Path(__file__).with_name("results.json")

#: Verdicts, in the order of the table's columns.
INTEROPERABLE: Final = "interoperable"
UNORDERED: Final = "safe, but unordered"
NEVER: Final = "must not be mixed"
VERDICTS: Final = (INTEROPERABLE, UNORDERED, NEVER)

#: Directions.
BOTH: Final = "both"
TO_JAVA: Final = "Python to Java"
TO_PYTHON: Final = "Java to Python"

_BEGIN: Final = "<!-- interop results: {} -->\n"
_END: Final = "<!-- end of interop results -->\n"
_PROPERTY: Final = "interop"


class Result(NamedTuple):
    """A row of ``results.json``."""

    peer: str
    kind: str  #: the class in Java
    property: str
    verdict: str
    direction: str
    version: str


# ---- what tests say


def declared(item: pytest.Item) -> Iterator[Result]:
    """What this test shows if it passes."""
    for mark in item.iter_markers("interop"):
        yield _result(item, *mark.args, **mark.kwargs)


def _result(
    item: pytest.Item,
    kind: str | Mapping[str, str],
    shown: str,
    *,
    direction: str = BOTH,
    verdict: str = INTEROPERABLE,
) -> Result:
    assert verdict in VERDICTS
    assert direction in (BOTH, TO_JAVA, TO_PYTHON)
    parameters: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    if "redisson_jars" in parameters:
        peer, version = "Redisson", parameters["redisson_jars"]
    else:
        assert isinstance(item, pytest.Function)
        peer, version = item.module.PEER
    return Result(peer, kind if isinstance(kind, str) else kind[parameters["kind"]], shown, verdict, direction, version)


def shows(kinds: Iterable[str], shown: str, **facts: str) -> Callable[[T], T]:
    """Marks a test that shows the same of all these kinds."""

    def mark(test: T) -> T:
        for kind in sorted({*kinds}):
            pytest.mark.interop(kind, shown, **facts)(test)
        return test

    return mark


class Recorder:
    """A plugin of pytest. Workers of xdist send their results with their reports."""

    def __init__(self, path: Path = RESULTS) -> None:
        self._path = path
        self._passed: set[Result] = set()
        self._failed: set[Result] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            item.user_properties += [(_PROPERTY, list(result)) for result in declared(item)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        shown = {Result(*map(str, value)) for name, value in report.user_properties if name == _PROPERTY}  # type: ignore[call-overload]
        if report.failed:
            self._failed |= shown
        elif report.when == "call" and report.passed:
            self._passed |= shown

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus != pytest.ExitCode.OK or not session.config.getoption("--write-results", default=False):
            return
        if not hasattr(session.config, "workerinput") and self._passed:
            store(self._path, self._passed - self._failed)
            write_tables(load(self._path))


# ---- as data


def load(path: Path = RESULTS) -> list[Result]:
    return [Result(*row) for row in json.loads(path.read_text("utf-8"))] if path.exists() else []


def store(path: Path, found: Iterable[Result]) -> None:
    """Adds to the rows that are there."""
    rows = sorted({*found, *load(path)})
    path.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]\n", "utf-8")


# ---- in the documents


def table(results: Sequence[Result], peer: str) -> str:
    """In Markdown: a row for each kind."""
    ours = [result for result in results if result.peer == peer]
    versions = sorted({result.version for result in ours}, key=lambda text: [int(part) for part in text.split(".")])
    lines = [f"| {peer} {' and '.join(versions)} | {' | '.join(VERDICTS)} |", "|---|" + "---|" * len(VERDICTS)]
    for kind in sorted({result.kind for result in ours}):
        found = [[each for each in ours if (each.kind, each.verdict) == (kind, verdict)] for verdict in VERDICTS]
        cells = [_cell(each, len(versions)) for each in found]
        lines.append(f"| `{kind}` | {' | '.join(cells)} |")
    if len(versions) > 1:
        lines += ["", f"**Bold**: shown with each version; else with {versions[-1]}."]
    return "\n".join(lines) + "\n"


def _cell(results: Sequence[Result], versions: int) -> str:
    """The properties: in bold if each version has it, and with the direction if there is only one."""
    texts = []
    for shown in sorted({result.property for result in results}):
        rows = [result for result in results if result.property == shown]
        directions = {result.direction for result in rows}
        text = shown if BOTH in directions or len(directions) == 2 else f"{shown} ({directions.pop()})"
        texts.append(f"**{text}**" if len({result.version for result in rows}) == versions > 1 else text)
    return "; ".join(texts) or "–"


def documents() -> Iterator[tuple[Path, str, str]]:
    """Documents with a table, the peer, and the table that stands there."""
    begin, end = _BEGIN.split("{}")
    for path in sorted((ROOT / "docs").rglob("*.md")):
        _, found, rest = path.read_text("utf-8").partition(begin)
        if found:
            peer, _, rest = rest.partition(end)
            yield path, peer, rest.partition(_END)[0]


def write_tables(results: Sequence[Result]) -> None:
    for path, peer, present in list(documents()):
        begin = _BEGIN.format(peer)
        text = path.read_text("utf-8")
        path.write_text(text.replace(begin + present + _END, begin + table(results, peer) + _END), "utf-8")


if __name__ == "__main__":
    write_tables(load())
