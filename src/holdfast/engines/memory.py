"""The memory engine: one store per process, for tests and for programs of one process. ``memory:NAME`` is a separate
store.

It is an engine like any other (leases expire, tokens grow, locks can be broken), shared by the sync and async clients
of the process. A forked child starts with empty stores.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from holdfast._config.common_options import CommonOptions
from holdfast._config.url_parts import ParsedURL, Parts, local_parameters
from holdfast._runtime.base import Event, Runtime, Wakeup
from holdfast.engines import descriptions
from holdfast.engines.base import (
    ALL_NAMES,
    MOST_WAITERS,
    Busy,
    Claim,
    Found,
    Granted,
    Guarantees,
    Holder,
    Kind,
    LockState,
    SimpleAttempt,
    Suspects,
    Waiter,
    Withdrawn,
    is_of_grant,
)

_GUARANTEES: Final = Guarantees(
    cross_process=False,
    cross_host=False,
    fair=True,
    fencing=True,
    survives_restart=False,
    survives_failover=False,
    needs_clocks="none beyond this process's own",
    loss_bound="none: the store and the holder share one clock",
)


#: A waiter whose turn it is, and that does not acquire within this time (its event loop was closed, or is blocked), is
#: overtaken. In seconds.
_TURN_LASTS: Final = 1.0
#: For how long a waiter whose turn has come may be overtaken by claims that do not queue.
_OVERTAKEN: Final = 0.01


@dataclass(slots=True)
class _Entry:
    """What is held. Only ``expires`` ever changes."""

    owner: str
    expires: float
    token: int  #: the last of its block
    tokens: int
    description: bytes
    since: int  #: ns since the epoch


@dataclass(slots=True, eq=False)
class _Place:
    """A claim's place in the queue of a name. It must not keep its waiter alive: a task whose event loop was closed
    leaves the queue when it is collected."""

    owner: str
    description: bytes
    since: float
    contender: weakref.ref[_MemoryContender]
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


class _Name(NamedTuple):
    """All that a store knows about one name. It is replaced, never changed."""

    token: int
    entry: _Entry | None
    queue: tuple[_Place, ...]

    def live(self, now: float) -> _Entry | None:
        return None if self.entry is None or self.entry.expires <= now else self.entry

    def head(self, now: float) -> _Place | None:
        """The first waiter that is still there and acquires when it is notified."""
        for place in self.queue:
            if place.contender() is not None and (place.notified is None or now < place.notified + _TURN_LASTS):
                return place
        return None

    def notify_head(self, now: float) -> None:
        head = self.head(now) if self.queue else None
        if head is not None:
            head.notify(now)

    def queue_without(self, owner: str) -> tuple[_Place, ...]:
        return tuple(place for place in self.queue if place.owner != owner and place.contender() is not None)


class Store:
    """The locks of one process, or of one NAME in it.

    Each operation looks at a name, decides, and has the record replaced if it is still the one it has seen; else it
    looks again. No lock is held while anything is called. Python runs signal handlers and finalisers where a call
    returns, on the same thread: with a lock held there, one that uses a lock of this store would wait for itself; and
    one that waits for a lock would keep all other threads from releasing it.
    """

    def __init__(self) -> None:
        self.names: dict[str, _Name] = {}
        self.keepers: set[weakref.ref[MemoryKeeper]] = set()  #: those to which a break is reported
        self.forgotten = 0  #: the largest token of any name that was dropped
        self.lock = threading.RLock()

    def replace(self, name: str, seen: _Name | None, forgotten: int, record: _Name) -> bool:
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

    def extend(self, name: str, entry: _Entry, expires: float) -> bool:
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
            left = _Name(record.token, None if free else record.entry, record.queue_without(owner))
            if (not free and left.queue == record.queue) or self.replace(name, record, 0, left):
                if free:
                    left.notify_head(now)
                return


_stores: dict[str, Store] = {}


class _MemoryContender:
    def __init__(self, session: MemorySession, attempt: SimpleAttempt) -> None:
        self._session = session
        self._attempt = attempt
        self._claim = claim = attempt.claim
        self.timeout = 0.0  # none of its requests takes time
        self.turn: Event = session.runtime.event()
        self._place = _Place(claim.owner, claim.description, time.time(), weakref.ref(self))

    async def wait(self, until: float) -> None:
        now = self._session.runtime.now()
        self.turn = turn = self._session.runtime.event()  # before the look: a later change sets this one
        self._place.notified = None
        record = self._queued(now)
        entry, head = record.live(now), record.head(now)
        if entry is not None:
            until = min(until, entry.expires)
        elif head is None or head is self._place:
            return
        else:
            head.notify(now)
            until = min(until, (head.notified or now) + _TURN_LASTS)
        await turn.wait(until)

    def _queued(self, now: float) -> _Name:
        """Take a place in the queue, if it has none."""
        store, name, place = self._session.store, self._claim.name, self._place
        self._attempt.queued = True
        while True:
            forgotten, record = store.forgotten, store.names.get(name)
            if record is None:
                queued = _Name(forgotten, None, (place,))
            elif place in record.queue:
                return record
            else:
                queued = _Name(record.token, record.entry, (*record.queue_without(place.owner), place))
            if store.replace(name, record, forgotten, queued):
                return queued

    async def leave(self) -> bool:
        self.abandon()
        return True

    def abandon(self) -> None:
        # If it was the head, the wake-up may have been for it: it is passed on.
        self._session.store.leave(self._claim.name, self._claim.owner, self._session.runtime.now())


class _View:
    """One runtime's view of a store: what sessions and keepers have in common."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self.store = store
        self.runtime = runtime

    def renewed(self, attempt: SimpleAttempt, now: float, expires: float) -> Found:
        claim = attempt.claim
        while True:
            found, record = self._find(claim, now)
            if found is not Found.OURS or (record.entry and self.store.extend(claim.name, record.entry, expires)):
                return found

    def _find(self, claim: Claim, now: float) -> tuple[Found, _Name]:
        record = self.store.names.get(claim.name, _NOTHING)
        entry = record.live(now)
        if entry is None:
            return Found.GONE, record
        return (Found.OURS if entry.owner == claim.owner else Found.STOLEN), record

    def freed(self, attempt: SimpleAttempt, now: float) -> Found:
        claim = attempt.claim
        while True:
            found, record = self._find(claim, now)
            if found is not Found.OURS:
                return found
            free = _Name(record.token, None, record.queue)
            if self.store.replace(claim.name, record, 0, free):
                free.notify_head(now)
                return found


class MemorySession(_View):
    """A store as the callers of one client use it."""

    registers = None

    def attempt(self, claim: Claim) -> SimpleAttempt:
        return SimpleAttempt(claim)

    async def acquire(self, attempt: SimpleAttempt, timeout: float) -> Granted | Busy:
        claim = attempt.claim
        now, store, name = self.runtime.now(), self.store, claim.name
        while True:
            forgotten, record = store.forgotten, store.names.get(name)
            entry = None if record is None else record.live(now)
            if entry is not None:
                if entry.owner != claim.owner:
                    return Busy(entry.expires - now)
                if store.extend(name, entry, now + claim.ttl):
                    return Granted(entry.token)
                continue
            queue: tuple[_Place, ...] = ()
            last = forgotten
            if record is not None:
                last = record.token
                if record.queue:
                    head = record.head(now)
                    if (
                        head is not None
                        and head.owner != claim.owner
                        and (claim.fair or claim.non_barging or head.late(now))
                    ):
                        head.notify(now)
                        return Busy(None)
                    queue = record.queue_without(claim.owner)
            wall, tokens = time.time_ns(), claim.tokens
            token = max(last + 1, wall // 1000) + tokens - 1
            entry = _Entry(claim.owner, now + claim.ttl, token, tokens, claim.description, wall)
            if store.replace(name, record, forgotten, _Name(token, entry, queue)):
                return Granted(token)

    def contender(self, attempt: SimpleAttempt, timeout: float) -> _MemoryContender:
        return _MemoryContender(self, attempt)

    async def release(self, attempt: SimpleAttempt, timeout: float) -> Found:
        return self.freed(attempt, self.runtime.now())

    async def renew(self, attempt: SimpleAttempt, ttl: float, timeout: float) -> Found:
        now = self.runtime.now()
        return self.renewed(attempt, now, now + ttl)

    async def inspect(self, name: str, timeout: float) -> LockState:
        now = self.runtime.now()
        record = self.store.names.get(name, _NOTHING)
        entry = record.live(now)
        waiting = [place for place in record.queue if place.contender() is not None]
        queue = tuple(Waiter(place.owner, **_facts(place), since=place.since) for place in waiting[:MOST_WAITERS])
        if entry is None:
            return LockState(name, (), len(waiting), record.token or None, None, queue)
        left, first = entry.expires - now, entry.token - entry.tokens + 1
        until = time.time() + left
        holder = Holder(entry.owner, **_facts(entry), since=entry.since / 1e9, until=until, token=first, count=1)
        return LockState(name, (holder,), len(waiting), entry.token, left, queue)

    async def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        now = self.runtime.now()
        for name, record in list(self.store.names.items()):
            if name.startswith(prefix) and record.live(now):
                yield name

    async def break_(self, name: str, timeout: float, token: int | None = None) -> bool:
        now, store = self.runtime.now(), self.store
        while (record := store.names.get(name)) is not None and (entry := record.live(now)) is not None:
            if token is not None and not is_of_grant(token, entry.token, entry.tokens):
                return False
            broken = _Name(max(record.token + 1, time.time_ns() // 1000), None, record.queue)
            if store.replace(name, record, 0, broken):
                broken.notify_head(now)
                for reference in tuple(store.keepers):  # a copy, in one step: keepers come and go on other threads
                    keeper = reference()
                    if keeper is not None:
                        keeper.suspect(name)
                return True
        return False

    async def ping(self, timeout: float) -> None:
        pass

    async def close(self) -> None:
        pass


class MemoryKeeper(_View):
    """A store as the watchdog of one client uses it."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        super().__init__(store, runtime)
        self._suspects: set[str] = set()
        self._sleeper: Wakeup | None = None
        self._reference = weakref.ref(self, store.keepers.discard)
        store.keepers.add(self._reference)

    async def renew(self, attempts: Sequence[SimpleAttempt], ttl: float, timeout: float) -> Sequence[Found]:
        now = self.runtime.now()
        return [self.renewed(attempt, now, now + ttl) for attempt in attempts]

    async def withdraw(self, attempts: Sequence[SimpleAttempt], timeout: float) -> Sequence[Withdrawn]:
        # Nothing can arrive late: a request is over when its call returns.
        now = self.runtime.now()
        answers: list[Withdrawn] = []
        for attempt in attempts:
            answers.append(self.freed(attempt, now))
            # Its contender may have been interrupted before it left, and a release before it notified the next waiter.
            self.store.leave(attempt.claim.name, attempt.claim.owner, now)
        return answers

    def suspect(self, name: str) -> None:
        """``name`` was broken."""
        if self._sleeper is not None:
            self._suspects.add(name)
            self._sleeper.set()

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        first, self._sleeper = self._sleeper is None, wakeup
        if first:
            return ALL_NAMES  # what was broken before this moment was not reported
        await wakeup.wait(until)
        suspects = set()
        while self._suspects:  # others add to it meanwhile
            suspects.add(self._suspects.pop())
        return suspects

    async def close(self) -> None:
        self.store.keepers.discard(self._reference)


def _facts(source: _Entry | _Place) -> descriptions.Facts:
    return descriptions.facts(descriptions.parsed(source.description))


#: A name that was never used.
_NOTHING: Final = _Name(0, None, ())


class MemoryEngine:
    """Settings of ``memory:``: the name of a store."""

    scheme = "memory"
    guarantees = _GUARANTEES
    kinds = frozenset({Kind.LOCK})
    reserves_tokens = True
    strict_order = False
    replicates = False
    early_watch = False

    def __init__(self, name: str) -> None:
        self._name = name

    def validate_name(self, name: str) -> None:
        pass

    def session(self, runtime: Runtime) -> MemorySession:
        return MemorySession(_stores.setdefault(self._name, Store()), runtime)

    def keeper(self, runtime: Runtime) -> MemoryKeeper:
        return MemoryKeeper(_stores.setdefault(self._name, Store()), runtime)

    def after_fork_in_child(self) -> None:
        for store in list(_stores.values()):  # what was made of it before may still leave its queues
            store.lock = threading.RLock()
        _stores.clear()

    def __repr__(self) -> str:
        return f"<memory engine {self._name!r}>" if self._name else "<memory engine>"


def connect(target: str, options: dict[str, Any]) -> MemoryEngine:
    """The engine for ``memory:`` and ``memory:NAME``. It has no options; its tokens last as long as the process."""
    return MemoryEngine(target)


def parse(engine: str, parts: Parts, keywords: Mapping[str, Any]) -> ParsedURL:
    """The store's name in a memory: URL, or UsageError with the remedy."""
    own = local_parameters(parts, keywords, "memory: or memory:NAME")
    return ParsedURL(engine, unquote(parts.path), own, {}, {})


def option_names(engine: str) -> frozenset[str]:
    return frozenset()


class MemoryOptions(CommonOptions, total=False):
    """The options of ``memory:``, for type checkers."""
