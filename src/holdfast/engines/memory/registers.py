"""The registers of one store."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast._runtime.base import Event, Runtime
from holdfast.engines import waiter_queue
from holdfast.engines.registers import PRESENCE, Cell, Guard, Look, RegisterKey, Stale, Standing

if TYPE_CHECKING:
    from holdfast.engines.memory.store import Store

#: The key of a register in its store: the lock's name, and the part.
Place = tuple[str, str]


class Waiters:
    """Who looks at a register and who listens to it. Each step is one operation on a dict or a set, which is atomic."""

    __slots__ = ("by_name", "looked", "watching")

    def __init__(self) -> None:
        self.looked: dict[str, float] = {}  #: when each waiter has looked last
        self.by_name: dict[str, weakref.ref[MemoryListener]] = {}  #: the listener of each waiter
        self.watching: set[weakref.ref[MemoryListener]] = set()  #: the listeners for all changes

    def present(self, now: float) -> frozenset[str]:
        return frozenset(waiter for waiter in list(self.looked) if now < self.looked.get(waiter, 0.0) + PRESENCE)

    def forget_gone(self, queue: str) -> None:
        """Drop those that are not in the queue. Each load goes through all: with thousands that have waited one after
        the other, and are gone, every operation of a monitor would take longer than the one before."""
        queued = {entry.waiter for entries in waiter_queue.parse(queue).values() for entry in entries}
        for waiter in [each for each in list(self.looked) if each not in queued]:
            self.looked.pop(waiter, None)

    def forget_absent(self, now: float) -> None:
        """Drop those that were absent for so long that they have ended: the rest may look again any moment."""
        for waiter in list(self.looked):
            if self.looked.get(waiter, now) + 10 * PRESENCE < now:
                self.looked.pop(waiter, None)
                self.by_name.pop(waiter, None)

    def wake(self, names: Collection[str]) -> None:
        """Wake the named waiters, and those that listen to all changes."""
        found = [self.by_name.get(name) for name in names]
        for reference in (*found, *list(self.watching)):
            listener = None if reference is None else reference()
            if listener is not None:
                listener.wake()


class Register(NamedTuple):
    """The content of a register. It is replaced, never changed; its waiters stay."""

    guard: Guard
    value: bytes
    queue: str
    version: int
    waiters: Waiters

    def refuses(self, guard: Guard) -> bool:
        return guard.token < self.guard.token or (guard.token == self.guard.token and guard.owner != self.guard.owner)

    def cell(self, now: float) -> Cell:
        return Cell(self.value, self.queue, self.version, self.waiters.present(now))

    def stale(self) -> Stale:
        return Stale(self.guard.token, self.version)


_NO_GUARD: Final = Guard(-1, "")


class MemoryRegisters:
    """See :class:`holdfast.engines.registers.Registers`. As in the store: look, decide, replace what was looked at."""

    fused = False

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self.runtime = runtime

    def register(self, place: Place) -> Register:
        """What is there; an empty register is made if there is none."""
        found = self._store.registers.get(place)
        if found is not None:
            return found
        name, part = place
        self._store.parts.setdefault(name, {})[part] = None  # before: interrupted here, it is listed without a register
        return self._store.registers.setdefault(place, Register(_NO_GUARD, b"", "", 0, Waiters()))

    def _replace(self, place: Place, seen: Register, register: Register) -> bool:
        registers = self._store.registers
        with self._store.lock:  # and no call in here, see Store
            if registers[place] is not seen:
                return False
            registers[place] = register
            return True

    async def load(self, key: RegisterKey, guard: Guard, timeout: float) -> Cell | Stale:
        place = (key.name, key.part)
        while True:
            seen = self.register(place)
            if seen.refuses(guard):
                return seen.stale()
            if seen.guard == guard or self._replace(place, seen, seen._replace(guard=guard)):
                return seen.cell(self.runtime.now())

    async def store(
        self,
        key: RegisterKey,
        guard: Guard,
        version: int,
        timeout: float,
        *,
        value: bytes | None = None,
        queue: str | None = None,
        join: str | None = None,
        wake: Collection[str] = (),
        replicas: int = 0,
    ) -> int | Stale:
        place = (key.name, key.part)
        while True:
            seen = self.register(place)
            if seen.guard != guard or seen.version != version:
                return seen.stale()
            now = self.runtime.now()
            if join is not None:
                seen.waiters.looked[join] = now  # before: interrupted here, it is present without being queued
            changed = Register(
                guard,
                seen.value if value is None else value,
                seen.queue if queue is None else queue,
                version + 1,
                seen.waiters,
            )
            if self._replace(place, seen, changed):
                if queue is not None:
                    seen.waiters.forget_gone(queue)
                seen.waiters.forget_absent(now)
                seen.waiters.wake(wake)
                return version + 1

    async def look(self, key: RegisterKey, waiter: str, timeout: float) -> Look:
        return (await self.look_all(key, (waiter,), timeout)).get(waiter, Look(Standing.NOT_QUEUED))

    async def look_all(self, key: RegisterKey, waiters: Collection[str], timeout: float) -> Mapping[str, Look]:
        register, now = self.register((key.name, key.part)), self.runtime.now()
        for waiter in waiters:
            register.waiters.looked[waiter] = now
        return waiter_queue.looks(register.queue, register.waiters.present(now))

    async def peek(self, key: RegisterKey, timeout: float) -> Cell:
        return self.register((key.name, key.part)).cell(self.runtime.now())

    def conditions(self, name: str) -> dict[str, int]:
        """How many waiters each condition of a lock has."""
        parts, now = list(self._store.parts.get(name, ())), self.runtime.now()
        found = [self._store.registers.get((name, part)) for part in parts]
        return waiter_queue.waiting((each.queue, each.waiters.present(now)) for each in found if each is not None)

    async def swap(self, key: RegisterKey, version: int, value: bytes, timeout: float) -> Cell:
        place = (key.name, key.part)
        while True:
            seen, now = self.register(place), self.runtime.now()
            if seen.version != version:
                return seen.cell(now)
            changed = seen._replace(value=value, version=version + 1)
            if self._replace(place, seen, changed):
                seen.waiters.wake(())
                return changed.cell(now)

    def listener(self, key: RegisterKey, waiter: str | None) -> MemoryListener:
        return MemoryListener(self, (key.name, key.part), waiter)


class MemoryListener:
    """See :class:`holdfast.engines.registers.RegisterListener`. The store does not keep it alive: a task whose event
    loop was closed is gone when it is collected."""

    def __init__(self, registers: MemoryRegisters, place: Place, waiter: str | None) -> None:
        self._registers = registers
        self._place = place
        self._waiter = waiter
        self._woken: Event = registers.runtime.event()
        self._was_woken = False  # and not only ended
        self._wait_ended = False

    async def arm(self) -> None:
        waiters = self._registers.register(self._place).waiters
        if self._waiter is None:
            waiters.watching.add(weakref.ref(self, waiters.watching.discard))
        else:
            waiters.by_name[self._waiter] = weakref.ref(self)

    def wake(self) -> None:
        self._was_woken = True
        self._woken.set()

    def end_wait(self) -> None:
        self._wait_ended = True
        self._woken.set()

    async def wait(self, until: float) -> None:
        if await self._woken.wait(until):
            self._woken = self._registers.runtime.event()  # woken again before this: the caller looks after it anyway
            ended, self._wait_ended = self._wait_ended, False
            if not ended:
                self._was_woken = False
            elif self._was_woken:
                self._woken.set()

    def close(self) -> None:
        waiters = self._registers.register(self._place).waiters
        waiters.watching.discard(weakref.ref(self))
        if self._waiter is not None:
            waiters.by_name.pop(self._waiter, None)
