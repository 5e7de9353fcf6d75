"""Waiting for a wake-up through a register: a socket whose name is in the file."""

from __future__ import annotations

import contextlib
from typing import Final

from holdfast.engines.base import RequestFailed
from holdfast.engines.registers import RegisterKey
from holdfast.engines.sqlite import register_statements as statements
from holdfast.engines.sqlite.access import StoreAccess
from holdfast.engines.sqlite.store import Store
from holdfast.engines.sqlite.wakeup_socket import FOR_WAITER, WakeupSocket, send_wakeup
from holdfast.errors import EngineRefused

_SECOND: Final = 1_000_000
_TIMEOUT: Final = 1.0
#: The row of a listener for all changes is valid for this long, and written again when half of it is over (s).
_VALID: Final = 60.0
#: Where no socket can be made, its user looks this often (s).
_POLL: Final = 0.25
#: What a listener sends to itself: no wake-up.
_END_WAIT: Final = b"end"


class SqliteListener:
    """See :class:`holdfast.engines.registers.RegisterListener`."""

    def __init__(self, access: StoreAccess, key: RegisterKey, waiter: str | None) -> None:
        self._access = access
        self._key = key
        self._waiter = waiter
        self._store: Store | None = None
        self._wakeup: WakeupSocket | None = None
        self._arm_again = 0.0
        self._wait_ended = False
        self._woken = False  # by what came when a wait was ended

    async def arm(self) -> None:
        await self._access.run_retrying(_TIMEOUT, self._listen)

    def _listen(self, store: Store, now: int) -> None:
        if store is not self._store or self._wakeup is None or self._wakeup.fileno() < 0:
            self.close()
            self._store = store
            with contextlib.suppress(OSError):  # no sockets on this file system, or no descriptor left: poll
                self._wakeup = store.wakeup_socket(FOR_WAITER)
        self._arm_again = now / _SECOND + _VALID / 2
        if self._wakeup is None:
            return
        waiter, expires = self._waiter, now
        if waiter is None:
            waiter, expires = statements.ALL_CHANGES + self._wakeup.name, now + int(_VALID * _SECOND)
        row = (self._key.name, self._key.part, waiter, store.process, store.boot, expires, self._wakeup.name)
        store.write(statements.LISTEN, row)

    async def wait(self, until: float) -> None:
        runtime = self._access.runtime
        now = runtime.now()
        if now >= self._arm_again or self._store is None or self._store.abandoned:
            with contextlib.suppress(RequestFailed, EngineRefused):  # the file was replaced, or this is a forked child
                await self.arm()
        wakeup = self._wakeup
        at_once, woken = self._wait_ended or self._woken, self._woken
        if wakeup is None or wakeup.fileno() < 0:
            if not at_once:
                await runtime.sleep_until(min(until, now + _POLL))
        elif at_once or await runtime.readable((wakeup.fileno(),), until):
            woken |= any(message != _END_WAIT for message in wakeup.drain())
        self._woken = woken and self._wait_ended
        self._wait_ended = False

    def end_wait(self) -> None:
        self._wait_ended = True
        if self._wakeup is not None and self._store is not None:
            send_wakeup(self._store.directory, self._wakeup.name, _END_WAIT)

    def close(self) -> None:
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None and self._store is not None:
            self._store.close_socket(wakeup)
