"""A lock file as the watchdog of one client uses it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdfast._runtime.base import Runtime, Wakeup
from holdfast.engines.base import ALL_NAMES, Found, RequestFailed, SimpleAttempt, Suspects, Withdrawn
from holdfast.engines.sqlite import operations, shares, statements
from holdfast.engines.sqlite.access import StoreAccess
from holdfast.engines.sqlite.faults import Contended
from holdfast.engines.sqlite.store import Store
from holdfast.engines.sqlite.stores import opening
from holdfast.engines.sqlite.wakeup_socket import FOR_WATCHDOG, WakeupSocket
from holdfast.engines.sqlite.withdrawal import withdraw
from holdfast.errors import EngineError, EngineRefused

_FEW: Final = 8


class SqliteKeeper(StoreAccess):
    """See :class:`holdfast.engines.base.Keeper`."""

    def __init__(self, path: str, token_ttl: float | None, runtime: Runtime) -> None:
        super().__init__(path, token_ttl, runtime)
        self._wakeup: tuple[Store, WakeupSocket] | None = None

    async def renew(
        self, attempts: Sequence[SimpleAttempt], ttl: float, timeout: float
    ) -> Sequence[Found | RequestFailed]:
        deadline = self.runtime.now() + timeout
        answers: dict[SimpleAttempt, Found | RequestFailed] = {}
        for batch in _batches(attempts):
            left = max(0.0, deadline - self.runtime.now())
            claims, shared = [attempt.claim for attempt in batch], shares.is_shared(batch[0].claim)
            try:
                if len(batch) == 1:
                    extend = shares.extend if shared else operations.extend
                    found = [await self.run_retrying(left, extend, claims[0], ttl)]
                else:
                    extend_all = shares.extend_all if shared else operations.extend_all
                    found = await self.run_retrying(left, extend_all, claims, ttl)
                answers.update(zip(batch, found, strict=True))
            except RequestFailed as failure:
                answers.update(dict.fromkeys(batch, failure))
        return [answers[attempt] for attempt in attempts]

    async def withdraw(self, attempts: Sequence[SimpleAttempt], timeout: float) -> Sequence[Withdrawn]:
        deadline = self.runtime.now() + timeout
        answers: dict[SimpleAttempt, Withdrawn] = {}
        for batch in _batches(attempts):
            left = max(0.0, deadline - self.runtime.now())
            try:
                found = await self.run_retrying(left, withdraw, batch)
                answers.update(zip(batch, found, strict=True))
            except (RequestFailed, EngineError) as failure:
                answers.update(dict.fromkeys(batch, failure))
        return [answers[attempt] for attempt in attempts]

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        before = self._wakeup
        hints = self._hint_socket()
        if hints is None:
            await wakeup.wait(until)
            return ()
        if before is not self._wakeup:
            # Breaks before this moment were reported to no socket. And if the store was displaced, all in it is lost.
            return ALL_NAMES
        # The watchdog is a thread: its wake-up is the blocking runtime's, which has a pipe.
        pipe: Any = wakeup
        await self.runtime.readable((pipe.fileno(), hints.fileno()), until)
        try:
            return {message.decode() for message in hints.drain()}
        except UnicodeDecodeError:
            return ALL_NAMES

    def _hint_socket(self) -> WakeupSocket | None:
        """Each keeper has its own socket, so that a break is reported to every client of the process."""
        try:
            store = self.store(self.runtime.now())
            store.run_housekeeping(self.runtime.now())
            if self._wakeup is None or self._wakeup[0] is not store:
                self._close_hint_socket()
                self._wakeup = (store, store.wakeup_socket(FOR_WATCHDOG))
        except (OSError, Contended, RequestFailed, EngineRefused):
            return None  # then renewals find out
        return self._wakeup[1]

    def _close_hint_socket(self) -> None:
        hints, self._wakeup = self._wakeup, None
        if hints is not None:
            hints[0].close_socket(hints[1])

    async def close(self) -> None:
        with opening():
            self._closed = True
            self._close_hint_socket()
            await super().close()


def _batches(attempts: Sequence[SimpleAttempt]) -> Iterator[Sequence[SimpleAttempt]]:
    """As many at a time as one statement takes, all in the same table; a few are faster one at a time. Those of no
    process are not in the statement's process."""
    plain: list[SimpleAttempt] = []
    shared: list[SimpleAttempt] = []
    detached: list[SimpleAttempt] = []
    for attempt in attempts:
        claim = attempt.claim
        (shared if shares.is_shared(claim) else detached if claim.detached else plain).append(attempt)
    for group, largest in ((plain, statements.BATCH), (shared, statements.BATCH), (detached, 1)):
        step = largest if len(group) > _FEW else 1
        for start in range(0, len(group), step):
            yield group[start : start + step]
