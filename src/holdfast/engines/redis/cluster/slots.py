"""Which server has which slot. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from redis.crc import key_slot

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.dialect.requests import Publish

SLOTS: Final = 16384
#: A slot that is being moved may redirect twice; with more, the servers of the cluster do not agree.
HOPS: Final = 5
#: In place of a host: the server that answered does not know it, or does not announce it.
UNKNOWN: Final = ("", "?")
#: Ask for the table no more often (s): while a server is unreachable, every request finds it wrong.
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
    """The slots as the cluster last reported them. Shared by all sessions of one engine.

    Thread-safe: entries and lists are replaced as a whole. A wrong entry costs a redirection, never a wrong answer.
    """

    def __init__(self, seeds: Sequence[Place]) -> None:
        self.owners: list[Place | None] = [None] * SLOTS
        self._places: tuple[Place, ...] = ()  # all of these; to look for them in thousands of slots takes time
        self.stale = True  #: something did not fit: ask again
        self.known = False  #: it was reported at least once
        self.publish: Publish | None = None  #: None: not known yet
        self._seeds = seeds
        self._asked = float("-inf")
        self._troubled: dict[Place, float] = {}

    def places(self) -> Sequence[Place]:
        """All servers with slots. One whose last slot has moved away is among them until the table is reported anew."""
        return self._places

    def candidates(self) -> list[Place]:
        """The servers to ask for the table: those without recent trouble first."""
        known = dict.fromkeys([*self.places(), *self._seeds])
        return sorted(known, key=lambda place: self._troubled.get(place, 0.0))

    def may_refresh(self) -> bool:
        """Whether it is time to ask; if so, other callers need not."""
        now = time.monotonic()
        if now < self._asked + _REFRESH_EVERY:
            return False
        self._asked = now
        return True

    def learn(self, ranges: Iterable[tuple[int, int, Place]]) -> None:
        owners: list[Place | None] = [None] * SLOTS
        places = dict[Place, None]()
        for first, last, place in ranges:
            owners[first : last + 1] = [place] * (last + 1 - first)
            places[place] = None
        self.owners, self._places, self.stale, self.known = owners, tuple(places), False, True

    def moved(self, slot: int, place: Place) -> None:
        """One slot has moved; others probably have too."""
        self.owners[slot] = place
        self._places = tuple(dict.fromkeys((*self._places, place)))
        self.stale = True

    def trouble_with(self, place: Place) -> None:
        self._troubled[place] = time.monotonic()
        self.stale = True


def parse(reply: Sequence[Any], asked: Place) -> list[tuple[int, int, Place]]:
    """The masters in an answer to CLUSTER SLOTS, which ``asked`` gave."""
    return [(int(first), int(last), _place(master, asked)) for first, last, master, *_ in reply]


def _place(master: Sequence[Any], asked: Place) -> Place:
    """A server that does not announce its address is where it was asked; one that should have a host name and has none
    reports its address beside it."""
    host, port = (master[0] or b"").decode(), int(master[1])
    if host in UNKNOWN:
        beside = master[3] if host and len(master) > 3 and isinstance(master[3], dict) else {}
        host = beside.get(b"ip", b"").decode() or asked.host
    return Place(host, port or asked.port)


def unserved(slot: int) -> RequestFailed:
    return RequestFailed(f"no server of the cluster has slot {slot} at present", may_have_happened=False)


def astray(slot: int) -> RequestFailed:
    return RequestFailed(f"the servers of the cluster do not agree who has slot {slot}", may_have_happened=False)
