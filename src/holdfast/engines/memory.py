"""The memory engine: one store per process, for tests and for programs of one process. ``memory:NAME`` is a separate
store.

It is an engine like any other (leases run out, tokens grow, locks can be broken), shared by the sync and async clients
of the process. A forked child starts with empty stores.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast._runtime.base import Event, Runtime, Wakeup
from holdfast.engines.base import (
    ALL_NAMES,
    Busy,
    Claim,
    Found,
    Granted,
    Guarantees,
    Holder,
    LockState,
    Suspects,
    Withdrawn,
    no_watch,
    withdraw_each,
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


@dataclass(slots=True)
class _Entry:
    owner: str
    expires: float
    token: int
    description: bytes
    since: float


@dataclass(slots=True)
class _Name:
    """All that a store knows of one name."""

    token: int = 0
    entry: _Entry | None = None
    queue: deque[_MemoryContender] = field(default_factory=deque)

    def live(self, now: float) -> _Entry | None:
        if self.entry is not None and self.entry.expires <= now:
            self.entry = None
        return self.entry

    def raise_token(self, by: int) -> int:
        self.token = max(self.token + 1, time.time_ns() // 1000) + by - 1
        return self.token

    def wake_head(self) -> None:
        if self.queue:
            self.queue[0].bell.set()


class Store:
    """The locks of one process, or of one NAME in it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.names: dict[str, _Name] = {}
        self.sessions: weakref.WeakSet[MemorySession] = weakref.WeakSet()
        self._forgotten = 0  # the largest token of any name that was dropped

    def name(self, name: str) -> _Name:
        state = self.names.get(name)
        if state is None:
            state = self.names[name] = _Name(token=self._forgotten)
        return state

    def forget_idle(self, name: str) -> None:
        """Free names are dropped; what they knew of tokens stays, also if the wall clock is set back."""
        state = self.names.get(name)
        if state is not None and state.entry is None and not state.queue:
            self._forgotten = max(self._forgotten, state.token)
            del self.names[name]


_stores: dict[str, Store] = {}
_stores_lock = threading.Lock()


class _MemoryContender:
    def __init__(self, session: MemorySession, claim: Claim) -> None:
        self._session = session
        self._claim = claim
        self.bell: Event = session.runtime.event()

    async def wait(self, until: float) -> None:
        store, runtime = self._session.store, self._session.runtime
        with store.lock:
            state = store.name(self._claim.name)
            if self._claim.waiter is None:
                self._claim.waiter = self._claim.owner
                state.queue.append(self)
            self.bell = bell = runtime.event()
            entry = state.live(runtime.now())
            if entry is None and state.queue[0] is self:
                return
            if entry is not None:
                until = min(until, entry.expires)
        await bell.wait(until)

    async def leave(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        store = self._session.store
        with store.lock:
            state = store.names.get(self._claim.name)
            if state is not None and self in state.queue:
                was_head = state.queue[0] is self
                state.queue.remove(self)
                if was_head:
                    state.wake_head()  # the wake-up may have been for us: pass it on
                store.forget_idle(self._claim.name)


class MemorySession:
    """One runtime's view of a store."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self.store = store
        self.runtime = runtime
        self._suspects: set[str] = set()
        self._sleeper: Wakeup | None = None
        store.sessions.add(self)

    async def acquire(self, claim: Claim, timeout: float) -> Granted | Busy:
        now = self.runtime.now()
        with self.store.lock:
            state = self.store.name(claim.name)
            entry = state.live(now)
            if entry is not None and entry.owner == claim.owner:
                entry.expires = max(entry.expires, now + claim.ttl)
                return Granted(entry.token)
            if entry is not None:
                return Busy(entry.expires - now)
            if (claim.fair or claim.polite) and state.queue and state.queue[0]._claim is not claim:
                return Busy(None)
            token = state.raise_token(claim.tokens)
            state.entry = _Entry(claim.owner, now + claim.ttl, token, claim.description, time.time())
            if claim.waiter is not None:
                state.queue = deque(contender for contender in state.queue if contender._claim is not claim)
            return Granted(token)

    def contender(self, claim: Claim, timeout: float) -> _MemoryContender:
        return _MemoryContender(self, claim)

    async def renew(self, claims: Sequence[Claim], ttl: float, timeout: float) -> Sequence[Found]:
        now = self.runtime.now()
        answers = []
        with self.store.lock:
            for claim in claims:
                found, entry = self._find(claim, now)
                if found is Found.OURS and entry is not None:
                    entry.expires = max(entry.expires, now + ttl)
                answers.append(found)
        return answers

    def _find(self, claim: Claim, now: float) -> tuple[Found, _Entry | None]:
        state = self.store.names.get(claim.name)
        entry = None if state is None else state.live(now)
        if entry is None:
            return Found.GONE, None
        return (Found.OURS, entry) if entry.owner == claim.owner else (Found.STOLEN, entry)

    watch = no_watch

    async def release(self, claim: Claim, timeout: float) -> Found:
        with self.store.lock:
            found, _ = self._find(claim, self.runtime.now())
            if found is Found.OURS:
                state = self.store.names[claim.name]
                state.entry = None
                state.wake_head()
                self.store.forget_idle(claim.name)
            return found

    async def withdraw(self, claims: Sequence[Claim], timeout: float) -> Sequence[Withdrawn]:
        return await withdraw_each(self._withdraw_one, claims, timeout)

    async def _withdraw_one(self, claim: Claim, timeout: float) -> Found:
        # Nothing can arrive late: an attempt is over when its call returns. The queue entry went with its contender.
        return await self.release(claim, timeout)

    async def inspect(self, name: str, timeout: float) -> LockState:
        now = self.runtime.now()
        with self.store.lock:
            state = self.store.names.get(name)
            entry = None if state is None else state.live(now)
            waiters = 0 if state is None else len(state.queue)
            token = None if state is None else state.token or None
            if entry is None:
                return LockState(name, (), waiters, token, None)
            left = entry.expires - now
            facts: dict[str, Any] = json.loads(entry.description)
            holder = Holder(
                entry.owner, **facts, since=entry.since, until=time.time() + left, token=entry.token, count=1
            )
            return LockState(name, (holder,), waiters, entry.token, left)

    async def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        now = self.runtime.now()
        with self.store.lock:
            held = [name for name, state in self.store.names.items() if name.startswith(prefix) and state.live(now)]
        for name in held:
            yield name

    async def break_(self, name: str, timeout: float) -> bool:
        with self.store.lock:
            state = self.store.names.get(name)
            if state is None or state.live(self.runtime.now()) is None:
                return False
            state.raise_token(1)
            state.entry = None
            state.wake_head()
            for session in self.store.sessions:
                session._suspect(name)
            return True

    def _suspect(self, name: str) -> None:
        if self._sleeper is not None:
            self._suspects.add(name)
            self._sleeper.set()

    async def ping(self, timeout: float) -> None:
        pass

    async def doze(self, until: float, wakeup: Wakeup) -> Suspects:
        with self.store.lock:
            first, self._sleeper = self._sleeper is None, wakeup
        if first:
            return ALL_NAMES  # what was broken before this moment has been told to nobody
        await wakeup.wait(until)
        with self.store.lock:
            suspects, self._suspects = self._suspects, set()
        return suspects

    async def close(self) -> None:
        self.store.sessions.discard(self)


class MemoryEngine:
    """Settings of ``memory:``: the name of a store."""

    scheme = "memory"
    guarantees = _GUARANTEES
    reserves_tokens = True
    strict_order = False
    replicates = False
    early_watch = False

    def __init__(self, name: str) -> None:
        self._name = name

    def validate_name(self, name: str) -> None:
        pass

    def session(self, runtime: Runtime) -> MemorySession:
        with _stores_lock:
            store = _stores.setdefault(self._name, Store())
        return MemorySession(store, runtime)

    def after_fork_in_child(self) -> None:
        global _stores_lock
        _stores_lock = threading.Lock()
        _stores.clear()

    def __repr__(self) -> str:
        return f"<memory engine {self._name!r}>" if self._name else "<memory engine>"


def connect(target: str, options: dict[str, Any]) -> MemoryEngine:
    """The engine for ``memory:`` and ``memory:NAME``. It has no options; its tokens last as long as the process."""
    return MemoryEngine(target)
