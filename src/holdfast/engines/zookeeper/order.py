"""The queue of a lock, in Curator's names and order. Pure.

A contender is a child ``_c_<uuid>-lock-NNNNNNNNNN``: an id to find it again if the reply to its creation was lost, the
marker of the recipe, and a number that the server appends. The first child must be determined as Curator does, by the
*text* after the marker and among all children, including foreign ones. Any other order would give two winners: the
numbers are signed and wrap after 2^31 creations, and as text ``-`` sorts before ``0``.

Python compares texts by code point and Java by UTF-16 unit. These differ only above U+FFFF, which no node's name has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

#: Removed one after the other. A mutex has one; a read/write lock will have two, and a semaphore another one.
Markers = tuple[str, ...]
MUTEX: Final[Markers] = ("lock-",)

#: From here on a parent is refused (rule 8): far enough from the wrap that no queued contender passes it.
LAST_SEQUENCE: Final = 2**31 - 10**6

#: As the servers write it: at least ten characters, including a minus sign.
_SEQUENCE: Final = re.compile(r"[0-9]{10}|-[0-9]{9,10}")


def protected(uuid: str, marker: str = MUTEX[0]) -> str:
    """The name to create for a contender; the server appends the number. The uuid is in its canonical form."""
    return f"_c_{uuid}-{marker}"


def find_own(children: Iterable[str], uuid: str, markers: Markers = MUTEX) -> list[str]:
    """The children that were created for ``uuid``, first in the queue first.

    More than one, if a creation was repeated because a follower that lagged behind did not show the first.
    """
    return ordered((child for child in children if child.startswith(f"_c_{uuid}-")), markers)


def ordered(children: Iterable[str], markers: Markers = MUTEX) -> list[str]:
    """All children in queue order. Children that compare equal keep their order."""
    return sorted(children, key=lambda child: _after(child, markers))


def position(children: Iterable[str], own: str, markers: Markers = MUTEX) -> int | None:
    """How many children are before ``own``; None if it is missing, because its session ended or it was deleted."""
    queue = ordered(children, markers)
    return queue.index(own) if own in queue else None


def predecessor(children: Iterable[str], own: str, markers: Markers = MUTEX) -> str | None:
    """The child right before ``own``, to wait for. None if ``own`` is the first, or is missing: see ``position``."""
    queue = ordered(children, markers)
    place = queue.index(own) if own in queue else 0
    return queue[place - 1] if place else None


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
