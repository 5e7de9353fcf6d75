"""References to the pages of docs/design, found in text: ``rule 5``, ``faults R1–R6, R8``, ``test_R13_…``. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

#: Which anchor each kind of reference leads to, and in which document.
PAGES: Final = {
    "rule": "rules.md",
    "fault": "faults.md",
    "invariant": "invariants.md",
    "contract": "contract.md",
}

_NUMBER: Final = r"[A-Z]\d+[a-z]?"
_BETWEEN: Final = r"(?:–|,? and |,? or |, )"
_BY_KIND: Final = re.compile(
    rf"\b(?:(?P<rule>[Rr]ules?) (?P<rules>\d+(?:{_BETWEEN}\d+)*)"
    rf"|(?P<kind>[Ff]ault|[Ii]nvariant|[Cc]ontract)s? (?P<ids>{_NUMBER}(?:{_BETWEEN}{_NUMBER})*))\b"
)
_ONE: Final = re.compile(rf"(?P<first>{_NUMBER}|\d+)(?:–(?P<last>{_NUMBER}|\d+))?")
#: The simulation names invariants without the kind; a test may have the faults that it shows at the start of its name.
_BARE_INVARIANT: Final = re.compile(r"\bI\d{1,2}\b")
_TEST_NAME: Final = re.compile(r"\bdef test_(?P<ids>(?:T?[RK]\d+[ab]?_)+)")
#: Documents that are not part of the project, and section signs, which no page of it has.
_ELSEWHERE: Final = re.compile(
    r"\b(?:RULES|CONTRACT|DESIGN|HANDS|FAMILY|PEERS)\b"
    r"|\b(?:FAULTS|STYLE)(?:\.md\b| ?§| \d| [A-Z]-?[A-Z]?\d)"
    r"|§|\bfindings/"
)
#: A reference may be wrapped: the end of a line, and the mark of a comment on the next.
_WRAP: Final = re.compile(r"\s*\n\s*(?:#:?|--|\*)? *")


def references(text: str) -> Iterator[tuple[str, str]]:
    """Each reference of a text: its kind, and its number."""
    text = _WRAP.sub(" ", text)
    for found in _BY_KIND.finditer(text):
        kind = "rule" if found["rule"] else found["kind"].lower()
        for one in _ONE.finditer(found["rules"] or found["ids"]):
            yield from ((kind, number) for number in _expanded(one["first"], one["last"]))
    yield from (("invariant", found[0]) for found in _BARE_INVARIANT.finditer(text))
    for name in _TEST_NAME.finditer(text):
        yield from (("fault", number.removeprefix("T")) for number in name["ids"].rstrip("_").split("_"))


def _expanded(first: str, last: str | None) -> Iterator[str]:
    """``R1`` to ``R6``: all between them. A range over two letters is its two ends."""
    yield first
    if last is not None:
        letter, begin = first.rstrip("0123456789"), first.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        end = last.removeprefix(letter)
        if begin.isdigit() and end.isdigit():
            yield from (f"{letter}{number}" for number in range(int(begin) + 1, int(end)))
        yield last


def elsewhere(text: str) -> list[str]:
    """What a text says of documents that are not in the project."""
    return [found[0] for found in _ELSEWHERE.finditer(text)]
