"""Conditions: waiting with the lock given up, and notifications that are not lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast._runtime.blocking import run
from holdfast.engines.registers import RegisterKey
from holdfast.errors import InvalidName, NotHeld, UsageError
from holdfast.testing.conformance.actors import Actor, settled
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case, needs


@needs("registers")
class ConditionCases:
    @case
    async def test_notify_wakes_a_waiter_of_another_client_with_the_lock_and_a_new_token(self, world: World) -> None:
        here, there, (one, two) = world.connect(), world.connect(), world.actors(2)
        seen: dict[str, Any] = {}

        async def wait(lease: Any) -> None:
            seen["lease"], seen["before"] = lease, lease.token
            seen["woken"] = await settled(here.condition(here.lock(world.name())).wait())
            seen["after"], seen["held"] = lease.token, lease.held

        waiting = _within(world, one, here.lock(world.name()), wait)
        await world.until(lambda: "lease" in seen and not seen["lease"].held)
        with pytest.raises(NotHeld):
            seen["lease"].check()
        assert seen["lease"].lost_reason is None
        await _notify(world, two, there)
        await waiting
        assert seen["woken"] is True
        assert seen["held"]
        assert seen["after"] > seen["before"]

    @case
    async def test_wait_returns_false_at_its_timeout_with_the_lock(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lock = client.lock(world.name())

        async def wait(lease: Any) -> tuple[bool, bool]:
            return await settled(client.condition(lock).wait(timeout=world.paced(0.05))), lease.held

        assert await _within(world, actor, lock, wait) == (False, True)
        assert await world.is_free(world.name())

    @case
    async def test_notify_wakes_as_many_as_it_says_and_notify_all_the_rest(self, world: World) -> None:
        client, other, actors = world.connect(), world.connect(), world.actors(4)
        woken, waiting = _queue_up(world, client, actors[:3])
        await world.until(lambda: _entered(client, world, 3))
        await _notify(world, actors[3], other, count=2)
        await world.until(lambda: len(woken) == 2)
        assert sorted(woken) == [0, 1]
        await _notify(world, actors[3], other, count=None)
        await asyncio.gather(*waiting)
        assert sorted(woken) == [0, 1, 2]

    @case
    async def test_all_leases_of_the_caller_are_given_up_and_come_back(self, world: World) -> None:
        client, other, (one, two) = world.connect(), world.connect(), world.actors(2)
        lock, leases = client.lock(world.name()), []

        async def wait(outer: Any) -> list[bool]:
            inner = await settled(lock.acquire())
            leases.extend([outer, inner])
            await settled(client.condition(lock).wait())
            held = [lease.held for lease in leases]
            await settled(inner.release())
            return [*held, outer.held, outer.token == inner.token]

        waiting = _within(world, one, lock, wait)
        await world.until(lambda: len(leases) == 2 and not any(lease.held for lease in leases))
        await _notify(world, two, other)
        assert await waiting == [True, True, True, True]
        assert await world.is_free(world.name())

    @case
    async def test_conditions_of_one_lock_are_told_apart_by_name(self, world: World) -> None:
        client, actors = world.connect(), world.actors(3)
        woken, waiting = _queue_up(world, client, actors[:1], name="full")
        others, still_waiting = _queue_up(world, client, actors[1:2], name="empty")
        await world.until(lambda: _entered(client, world, 1, "full"))
        await world.until(lambda: _entered(client, world, 1, "empty"))
        await _notify(world, actors[2], client, name="full")
        await asyncio.gather(*waiting)
        assert (woken, others) == ([0], [])
        await _notify(world, actors[2], client, name="empty")
        await asyncio.gather(*still_waiting)

    @case
    async def test_inspect_counts_the_waiters_of_each_condition(self, world: World) -> None:
        client, other, actors = world.connect(), world.connect(), world.actors(4)
        assert (await world.inspect(other, world.name())).conditions == {}
        waiting = [*_queue_up(world, client, actors[:2], name="full")[1]]
        waiting += _queue_up(world, other, actors[2:3])[1]

        async def counted(expected: dict[str, int]) -> bool:
            return (await world.inspect(other, world.name())).conditions == expected

        await world.until(lambda: counted({"full": 2, "": 1}))
        await _notify(world, actors[3], client, name="full")
        await world.until(lambda: counted({"full": 1, "": 1}))
        await _notify(world, actors[3], client, name="full", count=None)
        await _notify(world, actors[3], client)
        await asyncio.gather(*waiting)
        assert await counted({})

    @case
    async def test_wait_for_returns_the_value_of_its_predicate(self, world: World) -> None:
        client, other, (one, two) = world.connect(), world.connect(), world.actors(2)
        lock, items, asked = client.lock(world.name()), list[str](), list[int]()

        def predicate() -> list[str]:
            asked.append(len(items))
            return items

        async def wait(lease: Any) -> Any:
            condition = client.condition(lock)
            assert not await settled(condition.wait_for(lambda: items, timeout=world.paced(0.01)))
            return await settled(condition.wait_for(predicate))

        waiting = _within(world, one, lock, wait)
        await world.until(lambda: len(asked) == 1)
        await _notify(world, two, other)  # for nothing: it waits again
        await world.until(lambda: len(asked) == 2)
        items.append("item")
        await _notify(world, two, other)
        assert await waiting == ["item"]

    @case
    async def test_conditions_need_the_lock(self, world: World) -> None:
        client, (one, two) = world.connect(), world.actors(2)
        lock = client.lock(world.name())
        condition = client.condition(lock)
        lease = await one.do(lock.acquire)
        for call in (condition.wait, condition.notify, condition.notify_all, lambda: condition.wait_for(lambda: True)):
            with pytest.raises(NotHeld):
                await two.do(call)
        await one.do(condition.notify)
        assert lease.held
        await one.do(lease.release)

    @case
    async def test_conditions_are_refused_for_what_cannot_have_them(self, world: World) -> None:
        client, other = world.connect(), world.connect()
        lock = client.lock(world.name())
        for wrong in (other.lock(world.name()), client.lock(world.name(), reentrant=False), world.name(), client):
            with pytest.raises(UsageError):
                client.condition(wrong)
        with pytest.raises(UsageError):
            client.condition(client.multi([lock, client.lock(world.name("other"))]))
        if client.guarantees.shared:
            with pytest.raises(UsageError, match="several holders"):
                client.condition(client.rwlock(world.name("rw")).read)
        for name in ("a b", "a=b", "a;b", "é", "x" * 65, None):
            with pytest.raises(InvalidName):
                client.condition(lock, name)

    @case
    async def test_a_hold_without_conditions_costs_no_requests(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        counted = await world.count_requests(client)
        await actor.within(client.lock(world.name()), lambda lease: None)
        assert set(counted) <= {"acquire", "release"}


class RefusedConditionCases:
    @case
    async def test_engines_without_registers_refuse_conditions(self, world: World) -> None:
        client = world.connect()
        if not client.guarantees.registers:
            with pytest.raises(UsageError, match="registers"):
                client.condition(client.lock(world.name()))


def _within(world: World, actor: Actor, lock: Any, body: Callable[[Any], Any]) -> asyncio.Future[Any]:
    """Run ``async def body(lease)`` with the lock. In sync its awaits are of values, so that it never suspends."""
    if world.api == "async":
        return actor.within(lock, body)

    def run(lease: Any) -> Any:
        coroutine = body(lease)
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value
        raise AssertionError("a sync body was suspended")

    return actor.within(lock, run)


def _queue_up(
    world: World, client: Any, actors: list[Actor], name: str = ""
) -> tuple[list[int], list[asyncio.Future[Any]]]:
    """Have all actors wait, one after another; the numbers of those that are through, and their calls."""
    woken: list[int] = []
    lock = client.lock(world.name())

    def wait(number: int) -> Callable[[Any], Any]:
        async def body(lease: Any) -> None:
            assert await settled(client.condition(lock, name).wait())
            woken.append(number)

        return body

    async def one_after_another(number: int, actor: Actor, before: int) -> None:
        await world.until(lambda: _entered(client, world, before + number, name))
        await _within(world, actor, lock, wait(number))

    return woken, [asyncio.ensure_future(one_after_another(n, actor, 0)) for n, actor in enumerate(actors)]


async def _entered(client: Any, world: World, count: int, name: str = "") -> bool:
    """Whether so many waiters are in the queue of the condition."""
    if count == 0:
        return True
    await world.do(client.ping)
    registers = client._opened.session.registers
    key = RegisterKey(world.name(), f"condition:{name}")
    cell = await world.do(lambda: _peek(world, registers, key))
    return bool(cell.queue.count(":") >= count)


def _peek(world: World, registers: Any, key: Any) -> Any:
    coroutine = registers.peek(key, 1.0)
    return run(coroutine) if world.api == "sync" else coroutine


async def _notify(world: World, actor: Actor, client: Any, count: int | None = 1, name: str = "") -> None:
    lock = client.lock(world.name())
    condition = client.condition(lock, name)
    call = condition.notify_all if count is None else lambda: condition.notify(count)
    await actor.within(lock, lambda lease: call())
