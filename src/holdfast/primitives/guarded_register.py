"""A register as the holder of its lock uses it: loaded under the guard of the hold, changed here, then stored at once.

Loading it raises the guard, before anything is read: from then on no earlier holder can change it. What was loaded is
valid for one token: a hold that was parked has another one, and loads again. The engine may have loaded it with the
grant already.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar, cast

from holdfast._core import renewing, retry
from holdfast._core.core import Core
from holdfast._core.hold import Deferred, Hold
from holdfast.engines import waiter_queue
from holdfast.engines.base import RequestFailed
from holdfast.engines.registers import Cell, Guard, RegisterKey, Registers, Stale
from holdfast.engines.waiter_queue import Queue
from holdfast.errors import EngineRefused, EngineUnavailable, LockError, LockLost, OutcomeUnknown, UsageError
from holdfast.primitives import condition_queue
from holdfast.primitives.condition_queue import Change

#: What was loaded longer ago, in seconds, is loaded again: it shows who is present.
_FRESH: Final = 1.0
_LONGEST_QUEUE: Final = 64 * 1024
_EMPTY: Final = Cell()

T = TypeVar("T")


class Written(NamedTuple):
    """What one store is to write, as the changes were when it was made."""

    guard: Guard
    version: int
    value: bytes | None
    queue: str | None
    wake: tuple[str, ...]


class GuardedRegister:
    """One register under one hold. The caller of the hold uses it."""

    def __init__(self, core: Core, hold: Hold, registers: Registers, key: RegisterKey) -> None:
        self.core = core
        self.hold = hold
        self.registers = registers
        self.key = key
        self.queue: Queue = {}  #: as it was loaded, with the changes that the next store makes
        self.mine: set[str] = set()  #: the entries that leave the queue when the critical section ends
        self._wake: list[str] = []  # whom the next store wakes
        self._cell = _EMPTY
        self._token: int | None = None  # of the hold that has loaded it
        self._loaded = 0.0
        self._unresolved = False  # a store was interrupted: it may take effect, now or later
        self._deferred: Deferred | None = None  # the store that the release of the hold makes
        self.content: object = None  #: what a primitive has made of the value, during the critical section

    @property
    def value(self) -> bytes:
        return self._cell.value

    @property
    def changed(self) -> bool:
        """Whether there is something to store."""
        return self.loaded and waiter_queue.to_text(self.queue) != self._cell.queue

    @property
    def loaded(self) -> bool:
        """Whether the present hold has loaded it."""
        return self._token == self.hold.token

    def apply(self, change: Change) -> None:
        """Have the next store make this change, too."""
        self.queue = change.queue
        self._wake += change.wake

    def savepoint(self) -> object:
        """For ``restore``: the changes that the next store makes."""
        return self.queue, tuple(self._wake)

    def restore(self, savepoint: object) -> None:
        self.queue, wake = cast("tuple[Queue, tuple[str, ...]]", savepoint)
        self._wake = list(wake)

    def discard(self) -> None:
        """Nothing is to be stored but what follows from the loaded queue itself: waiters that are gone."""
        self._wake.clear()
        self.undefer()
        if self.loaded:
            self.queue = waiter_queue.parse(self._cell.queue)
            if self.queue:
                self.apply(condition_queue.pass_on(self.queue, self._cell.present, self.mine))

    def leave_queue(self) -> None:
        """The critical section ends well with the next store: the entries of its caller leave."""
        if self.mine:
            self.apply(condition_queue.settle(self.queue, self.mine))
            self.mine = set()

    def defer(self, store: Deferred) -> None:
        """Leave ``store`` to the release of the hold."""
        self._deferred = store
        self.hold.plain = False
        self.hold.deferred = store

    def undefer(self) -> None:
        """Nothing is left to the release."""
        if self._deferred is not None:
            self.hold.deferred = None
            self._deferred = None  # not before: interrupted, it is done again

    async def load(self) -> None:
        """Read it, unless that was done just now, and pass on the notifications of waiters that are gone."""
        if self._deferred is not None:
            await self._deferred.make()  # the hold was not released after all: a signal handler uses it
        now = self.core.front.now()
        if self.loaded and not self._unresolved and (self.changed or now < self._loaded + _FRESH):
            return
        self._wake.clear()
        if not self._take_loaded(now):
            if self._unresolved:
                await self._shut_out_late_store()
            await self._load(self._limit())
            self._loaded = now
        self.discard()

    def _take_loaded(self, now: float) -> bool:
        """Whether the engine has loaded it with the grant, for this hold, just now."""
        grant = self.hold.grant
        if grant.loaded is None or grant.attempt.claim.register != self.key:
            return False
        (token, cell), grant.loaded = grant.loaded, None
        if token != self.hold.token or now >= grant.since + _FRESH or not self.hold.held:
            return False
        self._cell, self._token, self._loaded = cell, token, grant.since
        self._unresolved = False  # a store under an earlier token is shut out by now
        return True

    def written(self, value: bytes | None = None) -> Written:
        """What the next store writes: ``value``, if it is given, and the queue, if it has changed."""
        text = waiter_queue.to_text(self.queue)
        if len(text) > _LONGEST_QUEUE:
            raise UsageError(f"{self.hold.policy.title} has too many waiters", name=self.hold.policy.name)
        queue = None if text == self._cell.queue else text
        wake = tuple(dict.fromkeys(self._wake)) if self._wake else ()
        return Written(self._guard(), self._cell.version, value, queue, wake)

    async def store(self, written: Written, *, join: str | None = None, limit: float | None = None) -> None:
        """Write it. By the hold's deadline, unless ``limit`` is earlier."""
        guard, version, value, queue, wake = written
        replicas = self.hold.policy.replicas
        may_be_stored = False

        async def request() -> int | Stale:
            nonlocal may_be_stored
            try:
                return await self.registers.store(
                    self.key, guard, version, self._timeout(), value=value, queue=queue, join=join, wake=wake,
                    replicas=replicas,
                )  # fmt: skip
            except RequestFailed as failure:
                may_be_stored |= failure.may_have_happened
                raise

        self._unresolved = True
        answer = await self._answered(request, self.hold.deadline if limit is None else limit, "store")
        if isinstance(answer, Stale):
            try:
                if (answer.token, answer.version) != (guard.token, version + 1):
                    await self._refuse(answer)
                # An earlier transmission took effect, and its reply was lost; unless an equal token is another owner's.
                await self._load(self._limit())
            except (LockLost, EngineUnavailable) as error:
                if not may_be_stored:
                    raise
                # It may have taken effect before a later holder came: so it is not known to have failed.
                raise self.unknown(str(error)) from error
        else:
            before = self._cell
            self._cell = Cell(
                before.value if value is None else value,
                before.queue if queue is None else queue,
                answer,
                before.present,
            )
        self._unresolved = False
        self._wake.clear()

    @property
    def unsettled(self) -> bool:
        """Whether something is left to be stored that nothing else will store."""
        return self._deferred is None and (bool(self.mine) or self.changed)

    async def settle(self, *, failed: bool) -> None:
        """The critical section ends: the entries of its caller leave; if it ``failed``, others are notified instead."""
        await self.load()
        if failed:
            self.apply(condition_queue.give_up(self.queue, self.mine))
        self.leave_queue()
        if self.changed:
            await self.store(self.written(), limit=self.core.front.now() + self._timeout())

    async def _load(self, limit: float) -> None:
        guard = self._guard()
        answer = await self._answered(lambda: self.registers.load(self.key, guard, self._timeout()), limit, "load")
        if isinstance(answer, Stale):
            await self._refuse(answer)
        else:
            self._cell, self._token = answer, guard.token

    async def _shut_out_late_store(self) -> None:
        """A store that was interrupted may still be on its way. With another version it is refused from here on."""
        cell = self._cell
        if not self.loaded:
            self._unresolved = False  # it was sent under an earlier token, which the next load shuts out
            return
        guard = self._guard()

        async def request() -> int | Stale:
            return await self.registers.store(self.key, guard, cell.version, self._timeout(), queue=cell.queue)

        answer = await self._answered(request, self._limit(), "load")
        if isinstance(answer, Stale) and answer.token != guard.token:
            await self._refuse(answer)
        self._unresolved = False

    async def _answered(self, request: Callable[[], Awaitable[T]], limit: float, operation: str) -> T:
        """Repeat ``request`` until it is answered, at most until ``limit``."""
        hold = self.hold
        may_be_stored = False

        async def once() -> T:
            nonlocal may_be_stored
            if not hold.held:
                lost = hold.loss()
                raise self.unknown(str(lost)) if may_be_stored else lost
            try:
                return await request()
            except RequestFailed as failure:
                may_be_stored |= failure.may_have_happened and operation == "store"
                raise

        def give_up(failure: RequestFailed) -> Exception:
            return self.unknown(str(failure)) if may_be_stored else self.unavailable(operation, failure)

        return await retry.until_answered(self.core.front, once, limit, give_up, random.random)

    def unavailable(self, operation: str, failure: RequestFailed) -> EngineUnavailable:
        policy = self.hold.policy
        message = f"{policy.title}: {self.core.engine!r} could not {operation} its state: {failure}"
        return retry.unavailable(message, failure, name=policy.name)

    def unknown(self, why: str) -> OutcomeUnknown:
        """It may have been stored, or not."""
        policy = self.hold.policy
        message = f"{policy.title}: it is not known whether its state was stored: {why}"
        return OutcomeUnknown(message, operation="store", name=policy.name)

    async def _refuse(self, stale: Stale) -> None:
        """A later holder was here, so this hold is over; or else the engine's counter of tokens was reset."""
        await renewing.renew(self.core, self.hold, self.hold.grant.ttl)  # raises LockLost with the reason
        raise self.written_under(stale)

    def written_under(self, stale: Stale) -> EngineRefused:
        """The error where no later holder was there."""
        hold = self.hold
        return EngineRefused(
            f"{hold.policy.title} is held with token {hold.token}, but its state was written under {stale.token}: the "
            "engine's token counter was reset. Delete the state, or let the counter pass that token",
            name=hold.policy.name,
        )

    def _guard(self) -> Guard:
        return Guard(self.hold.token, self.hold.grant.attempt.owner)

    def _timeout(self) -> float:
        return self.hold.policy.request_timeout

    def _limit(self) -> float:
        return min(self.hold.deadline, self.core.front.now() + self.core.options.unavailable_after)


class HeldRegisters:
    """The registers that a hold uses: its attachment."""

    def __init__(self, core: Core, hold: Hold) -> None:
        self._core = core
        self._hold = hold
        self._by_key: dict[RegisterKey, GuardedRegister] = {}

    def register(self, key: RegisterKey) -> GuardedRegister:
        found = self._by_key.get(key)
        if found is None:
            registers = self._core.session.registers
            assert registers is not None
            found = self._by_key[key] = GuardedRegister(self._core, self._hold, registers, key)
        return found

    async def settle(self, *, failed: bool, but: GuardedRegister | None = None) -> None:
        """Of all registers, except ``but``. What could not be settled is passed on to another waiter: it is gone."""
        for register in list(self._by_key.values()):
            if register is not but and register.unsettled:
                with suppress(LockError):
                    await register.settle(failed=failed)


def registers_of(core: Core, hold: Hold) -> HeldRegisters:
    """The registers of ``hold``, which are settled when it ends."""
    found = hold.attachment
    if found is None:
        hold.plain = False
        found = hold.attachment = HeldRegisters(core, hold)
    assert isinstance(found, HeldRegisters)
    return found
