"""A lock file, open on one runtime. Statements run at once, in the caller's thread; only waiting is awaited."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from holdfast._runtime.base import Runtime, Wakeup
from holdfast.engines.base import (
    ALL_NAMES,
    Busy,
    Claim,
    Found,
    Granted,
    LockState,
    RequestFailed,
    Suspects,
    Withdrawn,
)
from holdfast.engines.sqlite import operations, statements
from holdfast.engines.sqlite.contender import SqliteContender
from holdfast.engines.sqlite.faults import Contended, Displaced
from holdfast.engines.sqlite.store import Store
from holdfast.engines.sqlite.stores import close_store, open_store, opening
from holdfast.engines.sqlite.wakeup_socket import WakeupSocket
from holdfast.errors import EngineError, EngineRefused

P = ParamSpec("P")
T = TypeVar("T")

# Pauses between tries while another process is in its transaction, which takes tens of µs. SQLite's own busy handler
# would block the thread, and with it an event loop.
_SHORTEST_PAUSE: Final = 0.000_05
_LONGEST_PAUSE: Final = 0.005
_FEW: Final = 8


class SqliteSession:
    """Fulfils :class:`holdfast.engines.base.Session`. Any number of sessions of a process share one store."""

    def __init__(self, path: str, token_ttl: float | None, runtime: Runtime) -> None:
        self.runtime = runtime
        self._path = path
        self._token_ttl = token_ttl
        self._store: Store | None = None
        self._closed = False
        self._wakeup: tuple[Store, WakeupSocket] | None = None

    def store(self, now: float) -> Store:
        """The store; opened on first use, after a fork, and when somebody has deleted or replaced the file."""
        store = self._store
        if store is None or store.abandoned or (now >= store.look_at and store.is_displaced(now)):
            return self._reopen(store)
        return store

    def _reopen(self, store: Store | None) -> Store:
        with opening():
            if self._closed:  # a thread that still waited
                raise RequestFailed(f"lock file {self._path}: this session is closed", may_have_happened=False)
            if self._store is store or self._store is None:
                self._store = open_store(self._path, self._token_ttl)
                if store is not None:
                    close_store(store)
            return self._store

    def liveness_fileno(self) -> int:
        """The descriptor to pass on to a command that shall keep this process's locks from being free at its death.

        As flock(1) does: whoever has it open counts as this process. Nobody renews for it, so the ttl still ends it.
        """
        return self.store(self.runtime.now()).liveness_fileno()

    async def run_retrying(
        self, timeout: float, operation: Callable[Concatenate[Store, int, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``operation(store, now in µs, …)``, again and again while other processes are in its way."""
        now = self.runtime.now()
        deadline, pause = now + timeout, _SHORTEST_PAUSE
        while True:
            try:
                return operation(self.store(now), int(now * operations.SECOND), *args, **kwargs)
            except Contended as contended:
                if now >= deadline:
                    raise _failed(self._path, timeout, contended) from contended
            await self.runtime.sleep_until(min(deadline, now + pause * random.uniform(0.5, 1.5)))
            pause = min(pause * 2, _LONGEST_PAUSE)
            now = self.runtime.now()

    async def acquire(self, claim: Claim, timeout: float) -> Granted | Busy:
        now = self.runtime.now()
        try:
            return operations.take(self.store(now), int(now * operations.SECOND), claim)
        except Contended:
            return await self.run_retrying(timeout, operations.take, claim)

    def contender(self, claim: Claim, timeout: float) -> SqliteContender:
        return SqliteContender(self, claim, timeout)

    async def renew(self, claims: Sequence[Claim], ttl: float, timeout: float) -> Sequence[Found | RequestFailed]:
        deadline = self.runtime.now() + timeout
        answers: list[Found | RequestFailed] = []
        for batch in _batches(claims):
            left = max(0.0, deadline - self.runtime.now())
            try:
                if len(batch) == 1:
                    answers.append(await self.run_retrying(left, operations.extend, batch[0], ttl))
                else:
                    answers += await self.run_retrying(left, operations.extend_all, batch, ttl)
            except RequestFailed as failure:
                answers += [failure] * len(batch)
        return answers

    async def release(self, claim: Claim, timeout: float) -> Found:
        now = self.runtime.now()
        try:
            return operations.give_up(self.store(now), int(now * operations.SECOND), claim)
        except Contended:
            return await self.run_retrying(timeout, operations.give_up, claim)

    async def withdraw(self, claims: Sequence[Claim], timeout: float) -> Sequence[Withdrawn]:
        deadline = self.runtime.now() + timeout
        answers: list[Withdrawn] = []
        for batch in _batches(claims):
            left = max(0.0, deadline - self.runtime.now())
            try:
                if len(batch) == 1:
                    answers.append(await self.run_retrying(left, operations.withdraw, batch[0]))
                else:
                    answers += await self.run_retrying(left, operations.withdraw_all, batch)
            except (RequestFailed, EngineError) as failure:
                answers += [failure] * len(batch)
        return answers

    async def inspect(self, name: str, timeout: float) -> LockState:
        return await self.run_retrying(timeout, operations.inspect, name)

    async def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        after: str | None = None
        while page := await self.run_retrying(timeout, operations.page_of_names, prefix, after):
            for name, held in page:
                if held:
                    yield name
            after = page[-1][0]

    async def break_(self, name: str, timeout: float, token: int | None = None) -> bool:
        return await self.run_retrying(timeout, operations.break_, name, token)

    async def ping(self, timeout: float) -> None:
        await self.run_retrying(timeout, _ping)

    async def doze(self, until: float, wakeup: Wakeup) -> Suspects:
        before = self._wakeup
        bell = self._hint_socket()
        if bell is None:
            await wakeup.wait(until)
            return ()
        if before is not None and before is not self._wakeup:
            return ALL_NAMES  # the store was displaced, and what was held in it is lost
        # Only a watchdog dozes, and it is a thread: its wakeup is the blocking runtime's, made of a pipe.
        pipe: Any = wakeup
        await self.runtime.readable((pipe.fileno(), bell.fileno()), until)
        try:
            return {message.decode() for message in bell.drain()}
        except UnicodeDecodeError:
            return ALL_NAMES

    def _hint_socket(self) -> WakeupSocket | None:
        """Each session that dozes has a bell of its own, so that every client of the process hears of a break."""
        try:
            store = self.store(self.runtime.now())
            store.run_housekeeping(self.runtime.now())
            if self._wakeup is None or self._wakeup[0] is not store:
                self._close_hint_socket()
                self._wakeup = (store, store.wakeup_socket("doze"))
        except (OSError, Contended, RequestFailed, EngineRefused):
            return None  # then renewals tell
        return self._wakeup[1]

    def _close_hint_socket(self) -> None:
        bell, self._wakeup = self._wakeup, None
        if bell is not None:
            bell[0].close_socket(bell[1])

    async def close(self) -> None:
        with opening():
            self._closed = True
            self._close_hint_socket()
            store, self._store = self._store, None
            if store is not None:
                close_store(store)


def _failed(path: str, timeout: float, contended: Contended) -> RequestFailed:
    displaced = isinstance(contended, Displaced)
    why = "its files were removed or replaced again and again" if displaced else "another process was in a transaction"
    return RequestFailed(f"lock file {path}: {why} for {timeout:g} s", may_have_happened=False)


def _batches(claims: Sequence[Claim]) -> Iterator[Sequence[Claim]]:
    """As many at a time as one statement takes; of a few, one at a time: that is faster."""
    step = statements.BATCH if len(claims) > _FEW else 1
    for start in range(0, len(claims), step):
        yield claims[start : start + step]


def _ping(store: Store, now: int) -> None:
    store.write(statements.PING, ())
