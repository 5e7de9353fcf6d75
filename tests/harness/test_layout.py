"""The rules of tests/README.md for the places of tests and helpers, and that a broken rule is reported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.source_files import FOLDERS, TESTS, broken_rules


def test_tests_and_helpers_are_where_the_rules_say() -> None:
    assert broken_rules() == []


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    """A small tests/ that breaks no rule."""
    files = {
        "core/__init__.py": "",
        "core/test_closing.py": "from tests.support.waiting import eventually\n",
        "support/__init__.py": '"""- ``waiting``: wait"""',
        "support/waiting.py": "import time\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    assert broken_rules(tmp_path) == []
    return tmp_path


@pytest.mark.parametrize(
    "name, text, complaint",
    [
        ("core/test_x.py", "from tests.core.test_closing import helper", "imports from the test module"),
        ("core/test_x.py", "import tests.core.test_closing", "imports from the test module"),
        ("core/test_x.py", "from tests.core import test_closing", "imports from the test module"),
        ("core/test_x.py", "from .test_closing import helper", "imports from the test module"),
        ("core/test_x.py", "def test():\n    from . import test_closing", "imports from the test module"),
        ("core/queue/test_x.py", "", "has no __init__.py"),
        ("test_x.py", "", "a test belongs below one of"),
        ("support/test_x.py", "", "a test belongs below one of"),
        ("unit/__init__.py", "", "is not a folder of"),
        ("support/utils.py", "", "is not in the map of"),
    ],
)
def test_a_broken_rule_is_reported(layout: Path, name: str, text: str, complaint: str) -> None:
    (layout / name).parent.mkdir(exist_ok=True)
    (layout / name).write_text(text, "utf-8")
    reports = broken_rules(layout)
    assert any(complaint in report for report in reports), reports


# ---- tests/README.md


README = TESTS / "README.md"


def test_the_readme_has_a_line_for_every_folder() -> None:
    listed = set(re.findall(r"^\| `?([a-z]+)`? \|", README.read_text("utf-8"), re.MULTILINE))
    assert listed >= FOLDERS, FOLDERS - listed


def paths_named(text: str) -> set[str]:
    """The files and folders that a text names in backquotes, with the test if it names one."""
    return set(re.findall(r"`((?:[a-z_]+/)+(?:[\w.]+)?(?:::\w+)*)`", text))


def missing(text: str, tests: Path) -> list[str]:
    """The files and tests that a text names but that do not exist in tests/ or elsewhere in the repository."""
    found = []
    for name in sorted(paths_named(text)):
        path, _, test = name.partition("::")
        test = test.rpartition("::")[2]
        places = [place for place in (tests / path, tests.parent / path) if place.exists()]
        if not places or (test and f"def {test}(" not in places[0].read_text("utf-8")):
            found.append(name)
    return found


def test_every_file_and_test_that_the_readme_names_exists() -> None:
    assert missing(README.read_text("utf-8"), TESTS) == []


def test_name_of_a_missing_file_or_test_is_reported() -> None:
    text = "`core/test_nothing.py` `core/test_closing.py::test_nothing` `core/test_closing.py` `core/`"
    assert missing(text, TESTS) == ["core/test_closing.py::test_nothing", "core/test_nothing.py"]
