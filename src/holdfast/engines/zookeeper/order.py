"""The queue of a lock, in Curator's names and order. Pure.

A contender is a child ``_c_<uuid>-lock-NNNNNNNNNN``: an id to find it again if the reply to its creation was lost, the
marker of the recipe, and a number that the server appends. The first child must be determined as Curator does, by the
*text* after the marker and among all children, including foreign ones. Any other order would give two winners: the
numbers are signed and wrap after 2^31 creations, and as text ``-`` sorts before ``0``.

Python compares texts by code point and Java by UTF-16 unit. These differ only above U+FFFF, which no node's name has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

#: Removed one after the other. A mutex has one, and a read-write lock has two.
Markers = tuple[str, ...]
MUTEX: Final[Markers] = ("lock-",)
READ: Final = "__READ__"
WRITE: Final = "__WRIT__"
READ_WRITE: Final[Markers] = (READ, WRITE)

#: From here on a parent is refused (rule 8): far enough from the wrap that no queued contender passes it.
LAST_SEQUENCE: Final = 2**31 - 10**6

#: As the servers write it: at least ten characters, including a minus sign.
_SEQUENCE: Final = re.compile(r"[0-9]{10}|-[0-9]{9,10}")
_PROTECTED: Final = re.compile(r"_c_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-")


def protected(uuid: str, marker: str = MUTEX[0]) -> str:
    """The name to create for a contender; the server appends the number. The uuid is in its canonical form."""
    return f"_c_{uuid}-{marker}"


def find_own(children: Iterable[str], uuid: str, markers: Markers = MUTEX) -> list[str]:
    """The children that were created for ``uuid``, first in the queue first.

    More than one, if a creation was repeated because a follower that lagged behind did not show the first.
    """
    return ordered((child for child in children if child.startswith(f"_c_{uuid}-")), markers)


def id_in(child: str) -> str | None:
    """The id for which a child was created; None if it has none."""
    found = _PROTECTED.match(child)
    return None if found is None else found[1]


def ordered(children: Iterable[str], markers: Markers = MUTEX) -> list[str]:
    """All children in queue order. Children that compare equal keep their order."""
    return sorted(children, key=lambda child: _after(child, markers))


def predecessor(children: Iterable[str], own: str, markers: Markers = MUTEX) -> str | None:
    """The child right before ``own``, to wait for. None if ``own`` is the first, or is missing."""
    queue = ordered(children, markers)
    place = queue.index(own) if own in queue else 0
    return queue[place - 1] if place else None


def conflicting(children: Iterable[str], own: str, *, shared: bool) -> str | None:
    """In a read-write lock, the nearest child before ``own`` that excludes it: for a reader a writer, for a writer any.

    A child with the same number is not before it: a write and a read inside it belong to one caller.
    """
    number = _after(own, READ_WRITE)
    before = [child for child in children if (WRITE in child or not shared) and _after(child, READ_WRITE) < number]
    return max(before, key=lambda child: _after(child, READ_WRITE), default=None)


def divided(contenders: Sequence[str], markers: Markers = MUTEX) -> tuple[list[str], list[str]]:
    """Those of the ordered nodes of a queue that hold the object, and those that wait for it."""
    if markers != READ_WRITE:
        return list(contenders[:1]), list(contenders[1:])
    numbers = [_after(child, READ_WRITE) for child in contenders]
    first_write = next((number for child, number in zip(contenders, numbers, strict=True) if WRITE in child), None)
    holding: list[str] = []
    waiting: list[str] = []
    for child, number in zip(contenders, numbers, strict=True):
        reads = WRITE not in child and (first_write is None or number <= first_write)
        (holding if reads or number == numbers[0] else waiting).append(child)
    return holding, waiting


def sequence_of(child: str, markers: Markers = MUTEX) -> int | None:
    """The number that the server appended; None for a child that is not of this recipe."""
    number = _after(child, markers)
    return int(number) if number != child and _SEQUENCE.fullmatch(number) else None


def is_near_wrap(sequence: int) -> bool:
    """Whether a parent that assigned this number is near the wrap or past it: numbers after the wrap are negative."""
    return sequence < 0 or sequence > LAST_SEQUENCE


def _after(child: str, markers: Markers) -> str:
    """The text after the last occurrence of each marker; the whole text if there is none."""
    for marker in markers:
        child = child.rpartition(marker)[2]
    return child
