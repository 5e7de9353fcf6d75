"""A lock file as the watchdog of one client uses it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdfast._runtime.base import Runtime, Wakeup
from holdfast.engines.base import ALL_NAMES, Found, RequestFailed, SimpleAttempt, Suspects, Withdrawn
from holdfast.engines.sqlite import operations, statements
from holdfast.engines.sqlite.access import StoreAccess
from holdfast.engines.sqlite.faults import Contended
from holdfast.engines.sqlite.store import Store
from holdfast.engines.sqlite.stores import opening
from holdfast.engines.sqlite.wakeup_socket import FOR_WATCHDOG, WakeupSocket
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
        answers: list[Found | RequestFailed] = []
        for batch in _batches(attempts):
            left = max(0.0, deadline - self.runtime.now())
            try:
                if len(batch) == 1:
                    answers.append(await self.run_retrying(left, operations.extend, batch[0].claim, ttl))
                else:
                    answers += await self.run_retrying(
                        left, operations.extend_all, [attempt.claim for attempt in batch], ttl
                    )
            except RequestFailed as failure:
                answers += [failure] * len(batch)
        return answers

    async def withdraw(self, attempts: Sequence[SimpleAttempt], timeout: float) -> Sequence[Withdrawn]:
        deadline = self.runtime.now() + timeout
        answers: list[Withdrawn] = []
        for batch in _batches(attempts):
            left = max(0.0, deadline - self.runtime.now())
            try:
                if len(batch) == 1:
                    answers.append(await self.run_retrying(left, operations.withdraw, batch[0]))
                else:
                    answers += await self.run_retrying(left, operations.withdraw_all, batch)
            except (RequestFailed, EngineError) as failure:
                answers += [failure] * len(batch)
        return answers

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        before = self._wakeup
        hints = self._hint_socket()
        if hints is None:
            await wakeup.wait(until)
            return ()
        if before is not None and before is not self._wakeup:
            return ALL_NAMES  # the store was displaced, and everything held in it is lost
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
    """As many at a time as one statement takes; a few are faster one at a time. So are those of no process."""
    detached = any(attempt.claim.detached for attempt in attempts)
    step = statements.BATCH if len(attempts) > _FEW and not detached else 1
    for start in range(0, len(attempts), step):
        yield attempts[start : start + step]
