"""A lock file as the watchdog of one client uses it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdfast._runtime.base import Runtime, Wakeup
from holdfast.engines.base import ALL_NAMES, Found, RequestFailed, SimpleAttempt, Suspects, Withdrawn
from holdfast.engines.sqlite import ledger, statements
from holdfast.engines.sqlite.access import StoreAccess
from holdfast.engines.sqlite.bell import Bell
from holdfast.engines.sqlite.faults import Contended
from holdfast.engines.sqlite.store import Store
from holdfast.engines.sqlite.stores import opening
from holdfast.errors import EngineError, EngineRefused

_FEW: Final = 8


class SqliteKeeper(StoreAccess):
    """See :class:`holdfast.engines.base.Keeper`."""

    def __init__(self, path: str, token_ttl: float | None, runtime: Runtime) -> None:
        super().__init__(path, token_ttl, runtime)
        self._bell: tuple[Store, Bell] | None = None

    async def renew(
        self, attempts: Sequence[SimpleAttempt], ttl: float, timeout: float
    ) -> Sequence[Found | RequestFailed]:
        deadline = self.runtime.now() + timeout
        answers: list[Found | RequestFailed] = []
        for batch in _batches(attempts):
            left = max(0.0, deadline - self.runtime.now())
            try:
                if len(batch) == 1:
                    answers.append(await self.patiently(left, ledger.extend, batch[0].claim, ttl))
                else:
                    answers += await self.patiently(left, ledger.extend_all, [attempt.claim for attempt in batch], ttl)
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
                    answers.append(await self.patiently(left, ledger.withdraw, batch[0]))
                else:
                    answers += await self.patiently(left, ledger.withdraw_all, batch)
            except (RequestFailed, EngineError) as failure:
                answers += [failure] * len(batch)
        return answers

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        before = self._bell
        bell = self._hint_bell()
        if bell is None:
            await wakeup.wait(until)
            return ()
        if before is not None and before is not self._bell:
            return ALL_NAMES  # the store was displaced, and what was held in it is lost
        # The watchdog is a thread: its wake-up is the blocking runtime's, made of a pipe.
        pipe: Any = wakeup
        await self.runtime.readable((pipe.fileno(), bell.fileno()), until)
        try:
            return {message.decode() for message in bell.heard()}
        except UnicodeDecodeError:
            return ALL_NAMES

    def _hint_bell(self) -> Bell | None:
        """Each keeper has a bell of its own, so that a break is reported to every client of the process."""
        try:
            store = self.store(self.runtime.now())
            store.tidy(self.runtime.now())
            if self._bell is None or self._bell[0] is not store:
                self._close_bell()
                self._bell = (store, store.bell("doze"))
        except (OSError, Contended, RequestFailed, EngineRefused):
            return None  # then renewals find out
        return self._bell[1]

    def _close_bell(self) -> None:
        bell, self._bell = self._bell, None
        if bell is not None:
            bell[0].close_ear(bell[1])

    async def close(self) -> None:
        with opening():
            self._closed = True
            self._close_bell()
            await super().close()


def _batches(attempts: Sequence[SimpleAttempt]) -> Iterator[Sequence[SimpleAttempt]]:
    """As many at a time as one statement takes; of a few, one at a time: that is faster."""
    step = statements.BATCH if len(attempts) > _FEW else 1
    for start in range(0, len(attempts), step):
        yield attempts[start : start + step]
