"""Every reference to a rule, fault, invariant or sentence of the contract leads to an anchor in docs/design."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.markdown import ROOT, explicit_anchors, prose, shown
from tests.docs.references import PAGES, elsewhere, references

DESIGN: Final = ROOT / "docs" / "design"
#: What refers to the pages. The two files here have references in them that are wrong on purpose.
FOLDERS: Final = ("src", "tests", "bench", "docs", "examples")
SUFFIXES: Final = frozenset({".py", ".lua", ".c", ".md", ".toml", ".bash", ".fish", ".zsh"})
SAMPLES: Final = frozenset({"tests/docs/test_design_references.py", "tests/docs/references.py"})
DOCUMENTS: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "pyproject.toml")

#: A row of the catalogue: its id, and its last column, which names the tests.
_ROW: Final = re.compile(r'^\| <a id="fault-(?P<id>\w+)"></a>(?P<shown>\w+) \|.*\| (?P<tests>[^|]*) \|$')
_TEST: Final = re.compile(r"\]\(\.\./\.\./(?P<path>tests/[^)]*)\)")


def _files() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file() and shown(path) not in SAMPLES:
                yield path
    yield from (ROOT / name for name in DOCUMENTS)


def _anchors() -> set[str]:
    return {anchor for page in PAGES.values() for anchor in explicit_anchors(DESIGN / page)}


def unknown_references(text: str, anchors: set[str]) -> list[str]:
    """References of a text that lead nowhere."""
    return [f"{kind} {number}" for kind, number in references(text) if f"{kind}-{number}" not in anchors]


def test_every_reference_leads_to_an_anchor() -> None:
    anchors = _anchors()
    unknown = {
        shown(path): found for path in _files() if (found := unknown_references(path.read_text("utf-8"), anchors))
    }
    assert unknown == {}, "see docs/design/README.md, How to refer to a page"


def test_no_reference_to_a_document_outside_of_the_project() -> None:
    found = {shown(path): names for path in _files() if (names := elsewhere(path.read_text("utf-8")))}
    assert found == {}


def test_the_code_refers_to_every_kind_of_page() -> None:
    """A scanner that finds nothing would find no mistake either."""
    code = [path for path in _files() if path.suffix == ".py"]
    kinds = [kind for path in code for kind, _ in references(path.read_text("utf-8"))]
    assert {kind: kinds.count(kind) >= 3 for kind in PAGES} == dict.fromkeys(PAGES, True)


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("rule", [str(number) for number in range(1, 16)]),
        ("invariant", [f"I{number}" for number in range(1, 18)]),
        ("contract", [f"C{number}" for number in range(1, 28)]),
    ],
)
def test_the_numbers_are_complete_and_each_is_there_once(kind: str, expected: list[str]) -> None:
    assert explicit_anchors(DESIGN / PAGES[kind]) == [f"{kind}-{number}" for number in expected]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("# see rule 5.", ["rule 5"]),
        ("Rules 2 and 4", ["rule 2", "rule 4"]),
        ("faults R1–R3, R8", ["fault R1", "fault R2", "fault R3", "fault R8"]),
        ("(invariant I8, faults K2a, Z1)", ["invariant I8", "fault K2a", "fault Z1", "invariant I8"]),
        ("contract C9", ["contract C9"]),
        ("the end of a line: rule\n    # 14", ["rule 14"]),
        ('Violation("I9", "…")', ["invariant I9"]),
        ("def test_R19_R20_keys_expire() -> None:", ["fault R19", "fault R20"]),
        ("the rules of the house, 5 faults, S3", []),
    ],
)
def test_references_are_found(text: str, expected: list[str]) -> None:
    assert [f"{kind} {number}" for kind, number in references(text)] == expected


@pytest.mark.parametrize(
    "text",
    ["rule 16", "rule 0", "fault R24", "faults R22–R24", "invariant I18", '"I18"', "contract C28", "def test_R99_x()"],
)
def test_a_reference_that_leads_nowhere_is_noticed(text: str) -> None:
    assert unknown_references(text, _anchors())


@pytest.mark.parametrize(
    "text",
    ["(RULES 5)", "RULES §7", "FAULTS R16", "FAULTS.md", "as CONTRACT says", "HANDS §1", "STYLE §4", "findings/a"],
)
def test_a_reference_to_another_document_is_noticed(text: str) -> None:
    assert elsewhere(text)


def test_names_in_the_code_are_not_taken_for_documents() -> None:
    assert elsewhere("for fault in FAULTS: findings.append(_STYLES[FAULTS[0]])") == []


# ---- the catalogue names its tests


def _catalogue(page: Path = DESIGN / "faults.md") -> dict[str, str]:
    rows = [row for _, line in prose(page) if (row := _ROW.match(line)) is not None]
    assert all(row["id"] == row["shown"] for row in rows)
    return {row["id"]: row["tests"] for row in rows}


def unlisted(mentioned: dict[str, set[str]], catalogue: dict[str, str]) -> list[str]:
    """Test modules that name a fault, and are not in its row."""
    return [
        f"fault {number}: {module}"
        for module, numbers in mentioned.items()
        for number in sorted(numbers)
        if module not in {test["path"] for test in _TEST.finditer(catalogue[number])}
    ]


def test_every_fault_names_the_tests_that_show_it() -> None:
    catalogue = _catalogue()
    assert [f"fault-{number}" for number in catalogue] == explicit_anchors(DESIGN / "faults.md")
    for number, tests in catalogue.items():
        assert _TEST.search(tests) or "conformance" in tests or "not tested" in tests, number


def test_tests_that_name_a_fault_are_in_the_catalogue() -> None:
    modules = [path for path in (ROOT / "tests").rglob("test_*.py") if shown(path) not in SAMPLES]
    mentioned = {
        shown(path): {number for kind, number in references(path.read_text("utf-8")) if kind == "fault"}
        for path in modules
    }
    assert sum(map(len, mentioned.values())) > 20
    assert unlisted(mentioned, _catalogue()) == [], "add the module to the last column of docs/design/faults.md"


def test_a_test_that_is_missing_in_the_catalogue_is_noticed() -> None:
    catalogue = {"R1": "[replies](../../tests/a/test_replies.py)"}
    assert unlisted({"tests/a/test_replies.py": {"R1"}}, catalogue) == []
    assert unlisted({"tests/a/test_other.py": {"R1"}}, catalogue) == ["fault R1: tests/a/test_other.py"]
