"""Which server has which slot. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from redis.crc import key_slot

from holdfast.engines.redis.channel import Publish

SLOTS: Final = 16384
#: Ask for the table no more often: while a server is away, every request finds it wrong.
_REFRESH_EVERY: Final = 0.1


class Place(NamedTuple):
    """A server's host and port."""

    host: str
    port: int


@lru_cache(maxsize=16384)
def slot_of(key: str) -> int:
    slot: int = key_slot(key.encode())
    return slot


class Table:
    """The slots as the cluster last told them. Shared by all sessions of one engine: what one learns, all know.

    Thread-safe: entries and lists are replaced as a whole. A wrong entry costs a redirection, never a wrong answer.
    """

    def __init__(self, seeds: Sequence[Place]) -> None:
        self.owners: list[Place | None] = [None] * SLOTS
        self.stale = True  #: something did not fit: ask again
        self.publish: Publish | None = None  #: None: not known yet
        self._seeds = seeds
        self._asked = float("-inf")
        self._troubled: dict[Place, float] = {}

    def places(self) -> list[Place]:
        """All servers with slots."""
        return list(dict.fromkeys(place for place in self.owners if place is not None))

    def candidates(self) -> list[Place]:
        """Whom to ask for the table: those without recent trouble first."""
        known = dict.fromkeys([*self.places(), *self._seeds])
        return sorted(known, key=lambda place: self._troubled.get(place, 0.0))

    def may_refresh(self) -> bool:
        """Whether it is time to ask; if so, others need not."""
        now = time.monotonic()
        if now < self._asked + _REFRESH_EVERY:
            return False
        self._asked = now
        return True

    def learn(self, ranges: Iterable[tuple[int, int, Place]]) -> None:
        owners: list[Place | None] = [None] * SLOTS
        for first, last, place in ranges:
            owners[first : last + 1] = [place] * (last + 1 - first)
        self.owners, self.stale = owners, False

    def moved(self, slot: int, place: Place) -> None:
        """One slot has moved; others probably have too."""
        self.owners[slot] = place
        self.stale = True

    def trouble_with(self, place: Place) -> None:
        self._troubled[place] = time.monotonic()
        self.stale = True


def parse(reply: Sequence[Any], asked: Place) -> list[tuple[int, int, Place]]:
    """The masters in an answer to CLUSTER SLOTS, which ``asked`` gave. A server that does not know its own address, or
    keeps it to itself, is where it was asked."""
    ranges = []
    for first, last, master, *_ in reply:
        host, port = master[0], int(master[1])
        ranges.append((int(first), int(last), Place(host.decode() if host else asked.host, port or asked.port)))
    return ranges
