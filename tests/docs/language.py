"""Retired words and what to write instead; where they are found in text, identifiers included. Pure.

The second table of docs/reference/glossary.md is this one for people. Words that have a usual technical meaning as well
(line, word, tell, stage, cast) are not here, except in phrases that cannot mean it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

#: Names on disk, which processes with other versions of holdfast look for.
_SQLITE_FILES: Final = ("docs/reference/sqlite-files.md", "src/holdfast/engines/sqlite/", "tests/sqlite/")
#: Where all of them are named: here, in the test, and in the glossary.
ABOUT_WORDS: Final = ("tests/docs/language.py", "tests/docs/test_language.py", "docs/reference/glossary.md")


@dataclass(frozen=True, slots=True)
class Retired:
    """Forms of one word, what replaces them, and the paths (files or folders) where the word may still be used."""

    forms: str
    replacement: str
    allowed: tuple[str, ...] = ()


WORDS: Final = (
    Retired("colour colours coloured", "api, sync and async; color, for terminals"),
    Retired(
        "belief beliefs believe believes believed believing",
        "deadline, valid until, held",
        allowed=("docs/concepts/leases.md",),
    ),
    Retired("doze", "wait_for_hints", allowed=_SQLITE_FILES),
    Retired("dozes dozed dozing", "wait_for_hints"),
    Retired("polite politely politeness", "non_barging, does not barge"),
    Retired("errand errands", "pending withdrawal"),
    Retired("heir heirs", "next waiter"),
    Retired("gift gifts", "inherited grant"),
    Retired("bell", "wake-up", allowed=_SQLITE_FILES),
    Retired("bells ear ears vigil vigils alarm alarms", "wake-up, listener, tracking connection"),
    Retired("struck strike strikes striker strikers striking", "interrupted, interrupt, signal injector"),
    Retired("standstill standstills", "scheduler stall, pause"),
    Retired("luck lucky patience patient impatient bear bears mercy courtesy envy envies", "retry, timeout, tolerance"),
    Retired("crew crews nursery nurseries", "workers, worker processes"),
    Retired("company companies", "process group"),
    Retired("fleet fleets", "server group"),
    Retired("whoever somebody", "the component's name, another client, no caller"),
    Retired("nobody", "no caller, no client", allowed=("tests/servers/postgres.py",)),  # an account of the system
    Retired("pulse", "heartbeat", allowed=_SQLITE_FILES),
    Retired("pulses", "heartbeat"),
    Retired("play plays scene scenes", "scenario, step"),
)

#: The same for several words in a row.
PHRASES: Final[Mapping[str, str]] = {
    r"in vain": "useless, wasted",
    r"in peace": "undisturbed",
    r"left alone|leaves? (?:it|them|him) alone": "skipped, unreachable, unchanged",
    r"(?:stands?|stood|standing) still": "stalls, is paused, stops",
    r"(?:stands?|stood|standing) in line": "waits in the queue",
    r"(?:is|are|was|were|be|been|being) told(?! apart)": "is reported to, is notified, gets",
    r"the one in front|those in front": "the predecessor",
    r"(?:of|to|for|by|from|under|those|callers|waiters|holders) who": "the component's name",
    r"that is the point": "(say what it is for)",
}

_BY_FORM: Final = {form: word for word in WORDS for form in word.forms.split()}
_PHRASES: Final = [(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), pattern) for pattern in PHRASES]
# A word that each way to write the phrase contains.
_NEEDED: Final = ("vain", "peace", "alone", "still", "line", "told", "front", "who", "point")
_SEARCHED: Final = tuple(zip(_PHRASES, _NEEDED, strict=True))
_LETTERS: Final = re.compile(r"[A-Za-z]+")
#: Words of an identifier: ``dozeUntil``, ``HTTPBell``, ``EAR``.
_CAMEL: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def words(text: str) -> Iterator[str]:
    """The words of a text, in small letters; snake_case and CamelCase are taken apart."""
    for run in _LETTERS.findall(text):
        yield from (part.lower() for part in _CAMEL.findall(run))


def retired(path: str, text: str) -> list[str]:
    """Each retired word or phrase of one file, its name included: where it is, and what to write instead."""
    found = [f"{path}: its name: {word}" for word in words(path) if _is_retired(word, path)]
    if not _may_have_retired(path, text):
        return found
    for number, line in enumerate(text.splitlines(), 1):
        found += [
            f"{path}:{number}: {word}: write {_BY_FORM[word].replacement}"
            for word in words(line)
            if _is_retired(word, path)
        ]
        # In prose and in the names of tests alike.
        spaced = line.replace("_", " ")
        for pattern, key in _PHRASES:
            found += [f"{path}:{number}: {match[0]}: write {PHRASES[key]}" for match in pattern.finditer(spaced)]
    return found


def _may_have_retired(path: str, text: str) -> bool:
    """Whether the text has any of them, perhaps. Each different word is looked at once: few files have any."""
    distinct = set(_LETTERS.findall(text))
    small = {run.lower() for run in distinct}
    if any(_is_retired(word, path) for word in words(" ".join(distinct))):
        return True
    spaced = text.replace("_", " ")
    return any(needed in small and pattern.search(spaced) for (pattern, _), needed in _SEARCHED)


def _is_retired(word: str, path: str) -> bool:
    entry = _BY_FORM.get(word)
    return entry is not None and not path.startswith(entry.allowed)
