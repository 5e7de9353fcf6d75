"""Access of one runtime to a lock file: opens the store, and retries while other processes write."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, TypeVar

from holdfast._runtime.base import Runtime
from holdfast.engines.base import RequestFailed
from holdfast.engines.sqlite import operations
from holdfast.engines.sqlite.faults import Contended, Displaced
from holdfast.engines.sqlite.store import Store
from holdfast.engines.sqlite.stores import close_store, drop_user, open_store, opening

P = ParamSpec("P")
T = TypeVar("T")

# Pauses between retries while another process is in a transaction, which takes tens of µs. SQLite's own busy handler
# would block the thread, and an event loop with it.
_SHORTEST_PAUSE: Final = 0.000_05
_LONGEST_PAUSE: Final = 0.005


class StoreAccess:
    """The common base of sessions and keepers. All of them in one process share one store.

    Statements run in the caller's thread, without an await; only waiting is awaited.
    """

    _store: Store | None = None

    def __init__(self, path: str, token_ttl: float | None, runtime: Runtime) -> None:
        self.runtime = runtime
        self._path = path
        self._token_ttl = token_ttl
        self._user = object()  # this, towards the stores, which must not keep it alive
        self._closed = False

    def store(self, now: float) -> Store:
        """The store; opened on first use, after a fork, and when the file was deleted or replaced."""
        store = self._store
        if store is None or store.abandoned or (now >= store.look_at and store.is_displaced(now)):
            return self._reopen(store)
        return store

    def _reopen(self, store: Store | None) -> Store:
        with opening():
            if self._closed:  # by another thread, while this one waited
                raise RequestFailed(f"lock file {self._path}: this session is closed", may_have_happened=False)
            if self._store is store or self._store is None:
                self._store = open_store(self._path, self._token_ttl, self._user)
                if store is not None:
                    close_store(store, self._user)
            return self._store

    async def run_retrying(
        self, timeout: float, operation: Callable[Concatenate[Store, int, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``operation(store, now in µs, …)``; repeat it while another process is in a transaction."""
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

    async def close(self) -> None:
        with opening():
            self._closed = True
            if self._store is not None:
                close_store(self._store, self._user)
                self._store = None  # not before: an interrupted close does it again

    def __del__(self) -> None:
        if self._store is not None:
            drop_user(self._store, self._user)


def _failed(path: str, timeout: float, contended: Contended) -> RequestFailed:
    displaced = isinstance(contended, Displaced)
    why = "its files were removed or replaced repeatedly" if displaced else "another process was in a transaction"
    return RequestFailed(f"lock file {path}: {why} for {timeout:g} s", may_have_happened=False)
