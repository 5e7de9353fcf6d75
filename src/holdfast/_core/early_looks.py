"""Which holds to look at before their first renewal, where a look has their loss pushed from then on.

Most holds are over before that. So they are not noted one by one: those that have lived long enough are found among the
live grants, which are in about the order in which they were asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast._core.grant import Grant

#: A hold that lives this long is looked at once (s).
EARLY: Final = 0.1
#: Where many come one after another, this many seconds' worth are looked at together.
_TOGETHER: Final = 0.05
#: So much later than others a grant may become live that was asked for before them. One that is later still is watched
#: from its first renewal on.
_OUT_OF_ORDER: Final = 1.0
_PART: Final = 256
_NEVER: Final = float("inf")


class EarlyLooks:
    """The looks of one watchdog. The caller holds the core's lock."""

    __slots__ = ("_looked", "oldest")

    def __init__(self) -> None:
        self.oldest = _NEVER  #: no grant that was not looked at was asked for before
        self._looked = -_NEVER

    def due(self) -> float:
        """When to look next: not at each hold by itself, where locks come by the thousand."""
        return max(self.oldest + EARLY, self._looked + _TOGETHER)

    def take(self, live: dict[Grant, None], now: float) -> list[Grant]:
        """The grants that have lived long enough to be worth a look, from now on marked as looked at."""
        taken: list[Grant] = []
        if now < self.due():
            return taken
        before, self._looked, self.oldest = self._looked - _OUT_OF_ORDER, now, _NEVER
        for grant in _newest_first(live):
            if grant.since < before:
                break  # it was looked at, and so were those before it
            if grant.early:
                continue
            if grant.since + EARLY > now:
                self.oldest = min(self.oldest, grant.since)
                continue
            grant.early = True
            if not grant.watched and grant.lost is None:
                taken.append(grant)
        taken.reverse()
        return taken


def _newest_first(live: dict[Grant, None]) -> Iterator[Grant]:
    """By parts, each of which is copied in one step: a finaliser may change what is live."""
    seen, size = 0, _PART
    while seen < len(live):
        yield from list(itertools.islice(reversed(live), size))[seen:]
        seen, size = size, 4 * size
