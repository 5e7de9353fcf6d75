"""A call of every primitive on an event loop, which is interrupted at a chosen place; and what must be true then."""

from __future__ import annotations

import asyncio
import gc
import types
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import holdfast
from holdfast._core.core import Core
from tests.support.leaks import Baseline
from tests.support.signal_injector import InjectedInterrupt, SignalInjector
from tests.support.waiting import eventually

#: Long before the ttl of what was left held.
_SOON: Final = 10.0
#: Of the waits below: enough to sleep.
_MOMENT: Final = 0.001


#: What users keep when their call is interrupted: objects that must not lead or be a member then.
_kept: Final[list[object]] = []
#: The tickets of detached locks, by name.
_tickets: Final[dict[str, str]] = {}


class Call(NamedTuple):
    """``run`` uses the primitive ``name`` and gives everything back. ``free``: whether another client can have it."""

    run: Callable[[holdfast.AsyncClient, str], Coroutine[Any, Any, None]]
    free: Callable[[holdfast.Client, str], holdfast.Lease | holdfast.MultiLease | None]


def _lock(other: holdfast.Client, name: str) -> holdfast.Lease | None:
    return other.lock(name).try_acquire(timeout=_SOON)


def _unless_detached(other: holdfast.Client, name: str) -> holdfast.Lease | None:
    if name in _tickets:
        with suppress(holdfast.NotHeld):  # it was used, or the lock has been given up
            return other.attach(_tickets[name])
    return _lock(other, name)


def _both(other: holdfast.Client, name: str) -> holdfast.MultiLease | None:
    return other.multi([other.lock(name), other.lock(f"{name}-b")]).try_acquire(timeout=_SOON)


def _writing(other: holdfast.Client, name: str) -> holdfast.Lease | None:
    return other.rwlock(name).write.try_acquire(timeout=_SOON)


def _permits(other: holdfast.Client, name: str) -> holdfast.Lease | None:
    return other.semaphore(name, 2).try_acquire(2, timeout=_SOON)


def _no_member(other: holdfast.Client, name: str) -> None:
    eventually(lambda: not other.inspect(name).holders, _SOON, "no member is left")


def _anything(other: holdfast.Client, name: str) -> None:
    """Nothing of it is held."""


async def _read(client: holdfast.AsyncClient, name: str) -> None:
    async with client.rwlock(name).read:
        pass


async def _downgrade(client: holdfast.AsyncClient, name: str) -> None:
    rwlock = client.rwlock(name)
    write = await rwlock.write.acquire()
    read = await rwlock.read.acquire()
    await write.release()
    await read.release()


async def _semaphore(client: holdfast.AsyncClient, name: str) -> None:
    lease = await client.semaphore(name, 2).acquire(2)
    await lease.release()


async def _multi(client: holdfast.AsyncClient, name: str) -> None:
    async with client.multi([client.lock(name), client.lock(f"{name}-b")]):
        pass


async def _wait(client: holdfast.AsyncClient, name: str) -> None:
    lock = client.lock(name)
    async with lock:
        assert not await client.condition(lock).wait(_MOMENT)


async def _notify(client: holdfast.AsyncClient, name: str) -> None:
    lock = client.lock(name)
    async with lock:
        await client.condition(lock).notify()


class _Counter(holdfast.AsyncMonitor):
    number: int = 0
    changed = holdfast.condition()

    @holdfast.synchronized
    async def add(self) -> None:
        self.number += 1
        await self.changed.wait(_MOMENT)
        await self.changed.notify()


async def _monitor(client: holdfast.AsyncClient, name: str) -> None:
    await _Counter(client, name).add()


async def _latch(client: holdfast.AsyncClient, name: str) -> None:
    latch = client.latch(name, 2)
    await latch.count_down()
    await latch.wait(_MOMENT)


async def _barrier(client: holdfast.AsyncClient, name: str) -> None:
    barrier = client.barrier(name, 1)
    _kept.append(barrier)
    assert await barrier.enter()
    _kept.clear()  # it is a member, and could leave again if that is interrupted
    assert await barrier.leave()


async def _election(client: holdfast.AsyncClient, name: str) -> None:
    election = client.election(name)
    _kept.append(election)
    await election.campaign()
    _kept.clear()  # it leads, and could resign again if that is interrupted
    await election.resign()


async def _detach(client: holdfast.AsyncClient, name: str, ttl: float = 30) -> None:
    lease = await client.lock(name, ttl=ttl).acquire()
    _tickets[name] = await lease.detach()
    attached = await client.attach(_tickets[name])
    await attached.release()


async def _detach_briefly(client: holdfast.AsyncClient, name: str) -> None:
    await _detach(client, name, ttl=_SOON / 3)


CALLS: Final = {
    "rwlock": Call(_downgrade, _writing),
    "read": Call(_read, _writing),
    "semaphore": Call(_semaphore, _permits),
    "multi": Call(_multi, _both),
    "wait": Call(_wait, _lock),
    "notify": Call(_notify, _lock),
    "monitor": Call(_monitor, _lock),
    "latch": Call(_latch, _anything),
    "barrier": Call(_barrier, _no_member),
    "election": Call(_election, _lock),
    "detach": Call(_detach, _unless_detached),
}
#: For two signals: between a ticket that is complete and its caller, the second one leaves the lock to its ttl.
CALLS_FOR_TWO: Final = CALLS | {"detach": Call(_detach_briefly, _unless_detached)}


class AsyncCaller:
    """A client on an event loop, and another one without, which finds out what was left."""

    def __init__(self, runner: asyncio.Runner, client: holdfast.AsyncClient, other: holdfast.Client) -> None:
        self._runner = runner
        self._client = client
        self._other = other
        self._prefix = uuid.uuid4().hex[:8]
        self._number = 0
        self._task: asyncio.Task[None] | None = None

    def undisturbed(self, call: Call) -> None:
        name = self._new_name()
        self._runner.run(self._as_task(call.run(self._client, name)))
        self._check(call, name, "nothing")

    def interrupted(self, call: Call, injector: SignalInjector) -> None:
        """Run ``call`` with a signal, perhaps outside its task; then the task is cancelled, as ``asyncio.run`` does."""
        name = self._new_name()
        try:
            with injector:
                self._runner.run(self._as_task(call.run(self._client, name)))
        except InjectedInterrupt:
            self._runner.run(self._end_task())
        self._check(call, name, f"a signal at {injector.interrupted_at}")

    def cancelled(self, call: Call, number: int, *, answered: bool) -> bool:
        """Run ``call`` and cancel it at the await with this number. Whether it has so many."""
        name = self._new_name()
        cancelling = Cancelling(number, answered=answered)
        try:
            self._runner.run(self._as_task(cancelling.run(call.run(self._client, name))))
        except asyncio.CancelledError:
            pass
        self._check(call, name, f"a cancellation at await {number} ({answered=}): {cancelling.awaited}")
        return cancelling.done

    def _new_name(self) -> str:
        self._number += 1
        return f"{self._prefix}{self._number}"

    async def _as_task(self, call: Awaitable[None]) -> None:
        self._task = asyncio.current_task()
        await call

    async def _end_task(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # it is known

    def _check(self, call: Call, name: str, where: str) -> None:
        self._task = None
        gc.collect(0)
        core: Core | None = self._client._opened
        assert core is not None
        eventually(lambda: not core.grants(), _SOON, f"nothing is renewed after {where}")
        lease = call.free(self._other, name)
        assert lease is not None or call.free in (_anything, _no_member), f"left held by {where}"
        if lease is not None:
            lease.release()
        state = self._other.inspect(name)
        assert not state.holders, f"held after {where}"
        assert not state.queue, f"queued after {where}"
        assert not core.acquiring, f"still acquiring after {where}"
        assert not core.releasing, f"still releasing after {where}"
        core.repair_slot(name)  # as the next caller of this client does
        assert core.queue.occupant(name) is None, f"its slot is occupied after {where}"
        _kept.clear()


async def _baseline() -> Baseline:
    return Baseline()


@contextmanager
def async_caller(url: str) -> Iterator[AsyncCaller]:
    """Nothing is left of the calls when it ends: no task, no thread and no descriptor.

    What the other client has open is not counted: how many connections it keeps depends on how long it has to wait.
    """
    with asyncio.Runner() as runner:
        client = holdfast.aio.connect(url)
        try:
            with holdfast.connect(url) as other:
                caller = AsyncCaller(runner, client, other)
                for call in CALLS.values():
                    caller.undisturbed(call)  # opens what stays open
                caller.cancelled(CALLS["wait"], 2, answered=False)  # likewise, for what is done in the background
            baseline = runner.run(_baseline())
            with holdfast.connect(url) as other:
                yield AsyncCaller(runner, client, other)
            # On the loop: a connection that a signal has reset is closed in one of its next turns.
            runner.run(baseline.until_nothing_is_left())
        finally:
            runner.run(client.close())


class Cancelling:
    """Runs a coroutine and cancels its task at one of its awaits: at once, or when what is awaited has just come."""

    def __init__(self, number: int, *, answered: bool) -> None:
        self._left = number
        self._answered = answered
        self.done = False
        self.awaited = ""

    @types.coroutine
    def run(self, coroutine: Coroutine[Any, Any, None]) -> Generator[Any, None, None]:
        task = asyncio.current_task()
        assert task is not None
        failure: BaseException | None = None
        while True:
            try:
                awaited = coroutine.send(None) if failure is None else coroutine.throw(failure)
            except StopIteration:
                return
            failure = None
            self._left -= 1
            if self._left == -1:
                self.done, self.awaited = True, repr(awaited)
                if self._answered and isinstance(awaited, asyncio.Future):
                    awaited.add_done_callback(lambda _: task.cancel())  # before the task itself is woken
                else:
                    task.cancel()
            try:
                yield awaited
            except BaseException as error:
                failure = error
