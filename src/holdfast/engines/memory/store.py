"""The locks of one store, and how threads and signal handlers change them without waiting for each other."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from holdfast.engines.memory.contender import MemoryContender
    from holdfast.engines.memory.keeper import MemoryKeeper
    from holdfast.engines.memory.registers import Register

#: A waiter whose turn it is, and that does not acquire within this time (its event loop was closed, or is blocked), is
#: overtaken. In seconds.
TURN_LASTS: Final = 1.0
#: For how long a waiter whose turn has come may be overtaken by claims that do not queue.
_OVERTAKEN: Final = 0.01


@dataclass(slots=True)
class Entry:
    """What is held. Only ``expires`` ever changes."""

    owner: str
    expires: float
    token: int  #: the last of its block
    tokens: int
    description: bytes
    since: int  #: ns since the epoch


@dataclass(slots=True, eq=False)
class Place:
    """A claim's place in the queue of a name. It must not keep its waiter alive: a task whose event loop was closed
    leaves the queue when it is collected."""

    owner: str
    description: bytes
    since: float
    contender: weakref.ref[MemoryContender]
    notified: float | None = None  #: when it was notified of its turn, if it has not asked since
    first_notified: float | None = None  #: when it was notified for the first time

    def late(self, now: float) -> bool:
        """Whether others have overtaken it for long enough since its turn came."""
        return self.first_notified is not None and now >= self.first_notified + _OVERTAKEN

    def notify(self, now: float) -> None:
        contender = self.contender()
        if contender is not None:
            if self.notified is None:
                self.notified = now
                self.first_notified = self.first_notified or now
            contender.turn.set()


class Name(NamedTuple):
    """All that a store knows about one name. It is replaced, never changed."""

    token: int
    entry: Entry | None
    queue: tuple[Place, ...]

    def live(self, now: float) -> Entry | None:
        return None if self.entry is None or self.entry.expires <= now else self.entry

    def head(self, now: float) -> Place | None:
        """The first waiter that is still there and acquires when it is notified."""
        for place in self.queue:
            if place.contender() is not None and (place.notified is None or now < place.notified + TURN_LASTS):
                return place
        return None

    def notify_head(self, now: float) -> None:
        head = self.head(now) if self.queue else None
        if head is not None:
            head.notify(now)

    def queue_without(self, owner: str) -> tuple[Place, ...]:
        return tuple(place for place in self.queue if place.owner != owner and place.contender() is not None)


class Store:
    """The locks of one process, or of one NAME in it.

    Each operation looks at a name, decides, and has the record replaced if it is still the one it has seen; else it
    looks again. No lock is held while anything is called. Python runs signal handlers and finalisers where a call
    returns, on the same thread: with a lock held there, one that uses a lock of this store would wait for itself; and
    one that waits for a lock would keep all other threads from releasing it.
    """

    def __init__(self) -> None:
        self.names: dict[str, Name] = {}
        self.registers: dict[tuple[str, str], Register] = {}  #: by name and part
        self.keepers: set[weakref.ref[MemoryKeeper]] = set()  #: those to which a break is reported
        self.forgotten = 0  #: the largest token of any name that was dropped
        self.lock = threading.RLock()

    def replace(self, name: str, seen: Name | None, forgotten: int, record: Name) -> bool:
        """Put ``record`` in the place of ``seen``; False if that is not what is there any more.

        Free names are dropped. What they knew of tokens stays, also if the wall clock is set back: ``forgotten`` as it
        was when the token in ``record`` was chosen.
        """
        names, idle = self.names, record.entry is None and not record.queue
        with self.lock:  # and no call in here
            if seen is not (names[name] if name in names else None):  # noqa: SIM401 (get() is a call)
                return False
            if seen is None and forgotten != self.forgotten:
                return False
            if not idle:
                names[name] = record
            elif seen is not None:
                del names[name]
            if idle and self.forgotten < record.token:
                self.forgotten = record.token
            return True

    def extend(self, name: str, entry: Entry, expires: float) -> bool:
        """Never shortens. False if ``entry`` does not hold ``name`` any more."""
        names = self.names
        with self.lock:  # and no call in here
            if name not in names or names[name].entry is not entry:
                return False
            if entry.expires < expires:
                entry.expires = expires
            return True

    def leave(self, name: str, owner: str, now: float) -> None:
        """Remove the owner's place, and notify the next waiter if the name is free: it may not have been yet."""
        while (record := self.names.get(name)) is not None:
            free = record.live(now) is None
            left = Name(record.token, None if free else record.entry, record.queue_without(owner))
            if (not free and left.queue == record.queue) or self.replace(name, record, 0, left):
                if free:
                    left.notify_head(now)
                return


#: A name that was never used.
NOTHING: Final = Name(0, None, ())
