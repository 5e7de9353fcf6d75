"""Retired words do not come back: one word for each concept, in documents, comments and names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.language import ABOUT_WORDS, PHRASES, WORDS, retired, words
from tests.docs.markdown import ROOT, shown, tables

FOLDERS: Final = ("src", "tests", "bench", "docs", "examples")
DOCUMENTS: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
SUFFIXES: Final = frozenset({".py", ".lua", ".c", ".md", ".toml", ".bash", ".fish", ".zsh"})


def _files() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file() and not shown(path).startswith(ABOUT_WORDS):
                yield path
    yield from (ROOT / name for name in DOCUMENTS)


def test_no_retired_word_is_used() -> None:
    found = [place for path in _files() for place in retired(shown(path), path.read_text("utf-8"))]
    assert found == [], "see docs/reference/glossary.md:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("async def doze(self) -> None: ...", ["doze"]),
        ("self._polite_claim = HTTPBell(EAR)", ["polite", "bell", "ear"]),
        ("#: Whoever waits is told in vain.", ["whoever", "is told", "in vain"]),
        ("def test_who_is_left_alone_is_told() -> None:", ["left alone", "is told"]),
        ("def test_the_queue_of_who_holds() -> None:", ["of who"]),
        ("CREW: Final = 3  # a fleet", ["crew", "fleet"]),
        ("clear, display, replay, bearer, early, label, color, the queue, a line of text, it told the loop", []),
    ],
)
def test_words_are_found_in_prose_and_in_names(text: str, expected: list[str]) -> None:
    found = [place.split(": ")[1] for place in retired("src/a.py", text)]
    assert sorted(word.lower() for word in found) == sorted(expected)


def test_a_word_in_the_name_of_a_file_is_found() -> None:
    assert retired("tests/test_errands.py", "") == ["tests/test_errands.py: its name: errands"]


def test_a_word_is_allowed_only_where_the_table_says_so() -> None:
    assert retired("docs/concepts/leases.md", "Belief ends with the deadline.") == []
    assert retired("docs/concepts/zookeeper.md", "Belief ends with the deadline.") != []


def test_identifiers_are_taken_apart() -> None:
    assert list(words("next_heirOf HTTPServer2x")) == ["next", "heir", "of", "http", "server", "x"]


def test_the_glossary_has_every_retired_word() -> None:
    _, replaced = tables(ROOT / "docs" / "reference" / "glossary.md")
    named = tuple(words(" ".join(row[0] for row in replaced[1:])))
    missing = [word.forms for word in WORDS if not any(form.startswith(named) for form in word.forms.split())]
    assert missing == []


def test_every_phrase_finds_itself() -> None:
    """A pattern with a mistake in it would find nothing."""
    for pattern in PHRASES:
        sample = re.sub(r"\(\?:([^|)]*)[^)]*\)", r"\1", pattern.split("|")[-1] if "(" not in pattern else pattern)
        sample = sample.split("|")[0].replace("s?", "s")
        assert retired("src/a.py", f"so {sample}, then"), pattern
