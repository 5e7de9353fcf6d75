"""The locks of one store, and how threads and signal handlers change them without waiting for each other."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.engines.base import EXCLUSIVE, Kind, Mode
from holdfast.engines.memory.sharing import Shared

if TYPE_CHECKING:
    from holdfast.engines.memory.contender import MemoryContender
    from holdfast.engines.memory.keeper import MemoryKeeper
    from holdfast.engines.memory.registers import Register
    from holdfast.engines.memory.watch import MemoryWatch

#: A waiter whose turn it is, and that does not acquire within this time (its event loop was closed, or is blocked), is
#: overtaken. In seconds.
TURN_LASTS: Final = 1.0
#: For how long a waiter whose turn has come may be overtaken by claims that do not queue.
_OVERTAKEN: Final = 0.01
#: A waiter for a read-write lock or a semaphore keeps others waiting behind it, also while it is not its turn: if it
#: has not asked for this time (its event loop is blocked), it is passed over until it asks again. In seconds.
_WAITER_LASTS: Final = 2.0


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
    mode: Mode = EXCLUSIVE
    seen: float = 0.0  #: when it asked last
    notified: float | None = None  #: when it was notified of its turn, if it has not asked since
    first_notified: float | None = None  #: when it was notified for the first time

    def present(self, now: float) -> bool:
        """Whether it is still there, and acquires when it is notified."""
        return self.contender() is not None and (self.notified is None or now < self.notified + TURN_LASTS)

    def waits(self, now: float) -> bool:
        """Whether others must wait behind it, for a read-write lock or a semaphore."""
        return self.present(now) and now < self.seen + _WAITER_LASTS

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
    """All that a store knows about one name. It is replaced, never changed.

    ``entry``: of a plain lock. ``shared``: of a read-write lock while it is held or waited for, and of a semaphore as
    long as the store lives: it has to remember its size.
    """

    token: int
    entry: Entry | None
    queue: tuple[Place, ...]
    shared: Shared | None = None

    def live(self, now: float) -> Entry | None:
        return None if self.entry is None or self.entry.expires <= now else self.entry

    def head(self, now: float) -> Place | None:
        """The first waiter of a plain lock that is still there and acquires when it is notified."""
        for place in self.queue:
            if place.present(now):
                return place
        return None

    def waiting(self, now: float) -> Iterator[Place]:
        """The waiters of a read-write lock or a semaphore that others must wait behind, in order."""
        return (place for place in self.queue if place.waits(now))

    def waiting_before(self, owner: str, now: float) -> Iterator[Mode]:
        """What is wanted by those that wait before the place of ``owner``; by all, if it has none. Lazy: thousands may
        wait, and the first of them mostly decides."""
        for place in self.queue:
            if place.owner == owner:
                return
            if place.waits(now):
                yield place.mode

    def in_use_as(self, now: float) -> Kind | None:
        """The kind of what is held or waited for."""
        if self.live(now) is not None:
            return Kind.LOCK
        shared = self.shared
        if shared is not None and (shared.kind is Kind.SEMAPHORE or shared.live(now).shares):
            return shared.kind
        return next((place.mode.kind for place in self.waiting(now)), None)

    def notify_head(self, now: float) -> None:
        """The first waiter, if it may acquire now. A grant that leaves room for the next notifies that one."""
        if not self.queue:
            return
        if self.shared is not None:
            self._notify_next(self.shared.live(now), now)
            return
        head = self.head(now)
        if head is not None:
            head.notify(now)

    def _notify_next(self, shared: Shared, now: float) -> None:
        for place in self.waiting(now):
            possible = shared.impossible(place.mode) is None
            if not possible or shared.has_room_for(place.mode):
                place.notify(now)
            if possible:
                return  # those behind it wait for it, or will be notified by its grant

    def queue_without(self, owner: str) -> tuple[Place, ...]:
        return tuple(place for place in self.queue if place.owner != owner and place.contender() is not None)

    def sharing(self, shared: Shared, queue: tuple[Place, ...], token: int | None = None) -> Name:
        """The record after a change of a read-write lock or a semaphore."""
        kept = shared if shared.kind is Kind.SEMAPHORE or shared.shares or queue else None
        return Name(self.token if token is None else token, None, queue, kept)


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
        self.parts: dict[str, dict[str, None]] = {}  #: of each name: the parts that may have a register
        self.keepers: set[weakref.ref[MemoryKeeper]] = set()  #: those to which a break is reported
        self.watches: set[weakref.ref[MemoryWatch]] = set()  #: those to which a change is reported
        self.forgotten = 0  #: the largest token of any name that was dropped
        self.lock = threading.RLock()

    def replace(self, name: str, seen: Name | None, forgotten: int, record: Name) -> bool:
        """Put ``record`` in the place of ``seen``; False if that is not what is there any more. Reports the change.

        Free names are dropped. What they knew of tokens stays, also if the wall clock is set back: ``forgotten`` as it
        was when the token in ``record`` was chosen.
        """
        names, idle = self.names, record.entry is None and not record.queue and record.shared is None
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
        if self.watches:
            self._report(name)
        return True

    def _report(self, name: str) -> None:
        for reference in list(self.watches):
            watch = reference()
            if watch is not None and watch.name == name:
                watch.wake()

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
        """Remove the owner's place, and notify the next waiter if it may acquire: it may not have been yet."""
        while (record := self.names.get(name)) is not None:
            queue, shared = record.queue_without(owner), record.shared
            free = shared is not None or record.live(now) is None
            if shared is not None:
                left = record.sharing(shared.live(now), queue)
            else:
                left = Name(record.token, None if free else record.entry, queue)
            if (not free and left.queue == record.queue) or self.replace(name, record, 0, left):
                if free:
                    left.notify_head(now)
                return


#: A name that was never used.
NOTHING: Final = Name(0, None, ())
