"""Deliberate bugs in registers, conditions and monitors."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import Final
from unittest import mock

from holdfast._core import parking
from holdfast.engines import waiter_queue
from holdfast.engines.redis.dialect import registers as dialect
from holdfast.engines.registers import Look
from holdfast.engines.waiter_queue import Queue
from holdfast.primitives import condition_queue
from holdfast.primitives.condition_queue import Change
from holdfast.primitives.waiting import _Waiter
from tests.simulation.mutants import Mutant, register, rewrite
from tests.simulation.world.base import BaseWorld
from tests.simulation.world.runtime import Cancelled, Process

CONDITION_MUTANTS: Final[dict[str, Mutant]] = {}

_mutant = partial(register, among=CONDITION_MUTANTS)


def _process(world: BaseWorld) -> Process:
    assert world.simulator.current is not None
    return world.simulator.current.process


@_mutant
def late_store_is_accepted(world: BaseWorld) -> Iterator[None]:
    """A store compares the guard alone: a late duplicate brings an earlier state back."""
    rewrite(world, "store", r"or version ~= ARGV\[3\] then", "then")
    yield


@_mutant
def only_stores_raise_the_guard(world: BaseWorld) -> Iterator[None]:
    """A load does not shut out earlier holders: one of them stores what the new one does not know."""
    rewrite(world, "load", r"'token', token, 'owner', ARGV\[2\]\)", "'loaded', '1')")
    newer = """local seen = found[1] or '0'
local ours = #seen < #ARGV[1] or (#seen == #ARGV[1] and seen <= ARGV[1])
if ours then redis.call('HSET', register, 'token', ARGV[1], 'owner', ARGV[2]) end"""
    rewrite(world, "store", r"local ours = found\[1\] == ARGV\[1\] and found\[2\] == ARGV\[2\]", newer)
    yield


@_mutant
def refused_store_looks_released(world: BaseWorld) -> Iterator[None]:
    """A store and release whose store is refused answers as if both had been done: an operation is lost."""
    rewrite(world, "store_release", r"not stored\.err and was_stored\(\)", "true")
    yield


@_mutant
def registered_after_the_release(world: BaseWorld) -> Iterator[None]:
    """A waiter enters the queue after it has given up the lock: it misses a notify in between."""
    run = _Waiter.run

    async def nothing() -> None:
        pass

    async def late(self: _Waiter, condition: str, value: bytes | None) -> bool:
        if value is not None:
            await self._register.store(self._register.written(value))
        await parking.away(self._core, self._hold, nothing, nothing)
        return await run(self, condition, None)

    with mock.patch.object(_Waiter, "run", late):
        yield


@_mutant
def consumed_at_the_grant(world: BaseWorld) -> Iterator[None]:
    """A notified waiter leaves the queue when it has the lock again: if it dies then, its notification is lost."""
    run = _Waiter.run

    async def leaving(self: _Waiter, condition: str, value: bytes | None) -> bool:
        woken = await run(self, condition, value)
        self._register.leave_queue()
        await self._register.store(self._register.written())
        return woken

    with mock.patch.object(_Waiter, "run", leaving):
        yield


@_mutant
def blind_time_out(world: BaseWorld) -> Iterator[None]:
    """A waiter whose time is over does not ask whether it was notified meanwhile."""
    run = _Waiter.run

    async def blind(self: _Waiter, condition: str, value: bytes | None) -> bool:
        woken = await run(self, condition, value)
        return woken and self._core.front.now() < self._deadline

    with mock.patch.object(_Waiter, "run", blind):
        yield


@_mutant
def blind_cancel(world: BaseWorld) -> Iterator[None]:
    """A cancelled waiter deletes its entry, although it was notified."""
    run = _Waiter.run

    async def deleting(self: _Waiter, condition: str, value: bytes | None) -> bool:
        try:
            return await run(self, condition, value)
        except Cancelled:
            _delete_entry(world, self)
            raise

    with mock.patch.object(_Waiter, "run", deleting):
        yield


def _delete_entry(world: BaseWorld, waiter: _Waiter) -> None:
    found = world.nodes[0].model.keys.peek(dialect.keys_of(waiter._register.key).register.encode())
    if found is not None:
        change = condition_queue.settle(waiter_queue.parse(found.get(b"queue", b"").decode()), {waiter._me})
        found[b"queue"] = waiter_queue.to_text(change.queue).encode()


@_mutant
def nothing_is_passed_on_while_waiting(world: BaseWorld) -> Iterator[None]:
    """No waiter looks after the notification of one that is gone."""

    def never(look: Look, orphaned_looks: int) -> bool:
        return False

    with mock.patch.object(condition_queue, "must_pass_on", never):
        yield


@_mutant
def exception_drops_the_entry(world: BaseWorld) -> Iterator[None]:
    """An operation that raises has changed nothing, but has used up its notification."""
    with mock.patch.object(condition_queue, "give_up", condition_queue.settle):
        yield


@_mutant
def wake_without_a_store(world: BaseWorld) -> Iterator[None]:
    """A notify wakes its waiters, but does not mark them as notified."""
    notify = condition_queue.notify

    def unmarked(queue: Queue, condition: str, count: int | None, mine: Collection[str] = ()) -> Change:
        return Change(queue, notify(queue, condition, count, mine).wake)

    with mock.patch.object(condition_queue, "notify", unmarked):
        yield


@_mutant
def presence_by_the_clients_clock(world: BaseWorld) -> Iterator[None]:
    """Waiters of a process whose clock is ahead stay present long after they are gone."""
    presence = dialect._presence

    def ahead() -> int:
        number = int(_process(world).name.removeprefix("p"))
        return presence() + 60_000 * (number % 2)

    with mock.patch.object(dialect, "_presence", ahead):
        yield
