"""What several processes held and when, on one clock, and what it must keep (invariants I1, I5, I7)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple


class Hold(NamedTuple):
    """One lease, from the return of its acquire to the call of its release, or until its holder learned of the loss."""

    owner: str
    token: int
    began: float  #: the call of acquire
    acquired: float
    ended: float
    loss: str | None  #: why it was lost, if it was
    added: int | None  #: the number whose addition was acknowledged


class Failure(NamedTuple):
    """An acquire that raised."""

    error: str
    began: float
    ended: float


class Journal:
    """One process's lines. Each is written whole, so that they can be read while it goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, entry: Hold | Failure) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([type(entry).__name__, *entry]) + "\n")

    def _entries(self) -> Iterator[list[Any]]:
        text = self._path.read_text("utf-8") if self._path.exists() else ""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)

    def holds(self) -> list[Hold]:
        return [Hold(*fields) for kind, *fields in self._entries() if kind == "Hold"]

    def failures(self) -> list[Failure]:
        return [Failure(*fields) for kind, *fields in self._entries() if kind == "Failure"]


def double_holds(holds: Iterable[Hold]) -> list[tuple[Hold, Hold]]:
    """Pairs that were held at the same time, the older token first."""
    by_token = sorted(holds, key=lambda hold: hold.token)
    return [
        (older, newer)
        for older, newer in combinations(by_token, 2)
        if older.acquired < newer.ended and newer.acquired < older.ended
    ]


def check_tokens(holds: Iterable[Hold]) -> None:
    """Invariant I5: every token is larger than those of all grants complete before its acquire, and issued once."""
    largest = -1
    complete = sorted(holds, key=lambda hold: hold.acquired)
    waiting = iter(complete)
    following = next(waiting, None)
    for hold in sorted(complete, key=lambda hold: hold.began):
        while following is not None and following.acquired < hold.began:
            largest = max(largest, following.token)
            following = next(waiting, None)
        assert hold.token > largest, f"{hold}: a grant with token {largest} was complete before it began"
    tokens = [hold.token for hold in complete]
    assert len(set(tokens)) == len(tokens)
