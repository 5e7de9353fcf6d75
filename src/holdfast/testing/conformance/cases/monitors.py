"""Monitors: shared variables that only their operations change."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

import holdfast
from holdfast.errors import InvalidState, UsageError
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case, needs


class Buffer(holdfast.Monitor):
    items: list[int] = []  # noqa: RUF012
    not_empty = holdfast.condition()
    not_full = holdfast.condition()

    @holdfast.synchronized
    def put(self, item: int) -> None:
        self.not_full.wait_for(lambda: len(self.items) < 2)
        self.items.append(item)
        self.not_empty.notify()

    @holdfast.synchronized
    def take(self, timeout: float | None = None) -> int | None:
        if not self.not_empty.wait_for(lambda: self.items, timeout):
            return None
        self.not_full.notify()
        return self.items.pop(0)

    @holdfast.synchronized
    def put_and_fail(self, item: Any) -> None:
        self.items.append(item)
        self.not_empty.notify()
        raise KeyError(item)

    @holdfast.synchronized
    def put_twice(self, item: int, other: Buffer) -> list[int]:
        self.items.append(item)
        try:
            other.put_and_fail(item)
        except KeyError:
            other.put(-item)
        return list(self.items)

    @holdfast.synchronized
    def fill(self, item: Any) -> None:
        self.items = [item]

    @holdfast.synchronized
    def size(self) -> int:
        return len(self.items)


class AsyncBuffer(holdfast.AsyncMonitor):
    items: list[int] = []  # noqa: RUF012
    not_empty = holdfast.condition()
    not_full = holdfast.condition()

    @holdfast.synchronized
    async def put(self, item: int) -> None:
        await self.not_full.wait_for(lambda: len(self.items) < 2)
        self.items.append(item)
        await self.not_empty.notify()

    @holdfast.synchronized
    async def take(self, timeout: float | None = None) -> int | None:
        if not await self.not_empty.wait_for(lambda: self.items, timeout):
            return None
        await self.not_full.notify()
        return self.items.pop(0)

    @holdfast.synchronized
    async def put_and_fail(self, item: Any) -> None:
        self.items.append(item)
        await self.not_empty.notify()
        raise KeyError(item)

    @holdfast.synchronized
    async def put_twice(self, item: int, other: AsyncBuffer) -> list[int]:
        self.items.append(item)
        try:
            await other.put_and_fail(item)
        except KeyError:
            await other.put(-item)
        return list(self.items)

    @holdfast.synchronized
    async def fill(self, item: Any) -> None:
        self.items = [item]

    @holdfast.synchronized
    async def size(self) -> int:
        return len(self.items)


def buffer(world: World, client: Any, **options: Any) -> Any:
    kind: Any = Buffer if world.api == "sync" else AsyncBuffer
    return kind(client, world.name(), **options)


@needs("registers")
class MonitorCases:
    @case
    async def test_operations_of_all_clients_see_the_same_variables(self, world: World) -> None:
        here, there = buffer(world, world.connect()), buffer(world, world.connect())
        assert await world.do(here.snapshot) == {"items": []}
        await world.do(lambda: here.put(1))
        await world.do(lambda: there.put(2))
        assert await world.do(here.snapshot) == await world.do(there.snapshot) == {"items": [1, 2]}
        assert await world.do(here.take) == 1

    @case
    async def test_producers_and_consumers_lose_and_double_nothing(self, world: World) -> None:
        """Through a buffer of two places: every one of them waits."""
        actors, items = world.actors(4), 6

        async def produce(number: int) -> None:
            monitor = buffer(world, world.connect())
            for item in range(items):
                await actors[number].do(partial(monitor.put, 10 * number + item))

        async def consume(number: int) -> list[int]:
            monitor = buffer(world, world.connect())
            return [await actors[number].do(monitor.take) for _ in range(items)]

        _, _, *taken = await asyncio.gather(produce(0), produce(1), consume(2), consume(3))
        assert sorted([*taken[0], *taken[1]]) == [*range(items), *range(10, 10 + items)]
        for number in (0, 1):
            for each in taken:
                own = [item for item in each if item // 10 == number]
                assert own == sorted(own)

    @case
    async def test_an_operation_that_raises_changes_nothing(self, world: World) -> None:
        monitor = buffer(world, world.connect())
        await world.do(lambda: monitor.put(1))
        with pytest.raises(KeyError):
            await world.do(lambda: monitor.put_and_fail(2))
        assert await world.do(monitor.snapshot) == {"items": [1]}
        assert await world.do(lambda: monitor.size()) == 1

    @case
    async def test_inner_operations_of_another_instance_see_the_variables_and_have_savepoints(
        self, world: World
    ) -> None:
        client = world.connect()
        one, other = buffer(world, client), buffer(world, client)
        assert await world.do(lambda: one.put_twice(5, other)) == [5, -5]
        assert await world.do(one.snapshot) == {"items": [5, -5]}

    @case
    async def test_a_wait_that_times_out_leaves_no_entry_behind(self, world: World) -> None:
        client = world.connect()
        monitor = buffer(world, client)
        assert await world.do(lambda: monitor.take(timeout=world.paced(0.02))) is None
        await world.do(lambda: monitor.put(3))
        assert await world.do(monitor.take) == 3
        assert await world.is_free(world.name())

    @case
    async def test_inspect_counts_the_waiters_of_its_conditions(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        monitor = buffer(world, client)
        taking = actor.do(monitor.take)

        async def counted() -> bool:
            return (await world.inspect(client, world.name())).conditions == {"not_empty": 1}

        await world.until(counted)
        await world.do(lambda: monitor.put(7))
        assert await taking == 7
        assert (await world.inspect(client, world.name())).conditions == {}

    @case
    async def test_values_that_do_not_fit_are_refused_and_nothing_is_stored(self, world: World) -> None:
        monitor = buffer(world, world.connect(), max_bytes=100)
        await world.do(lambda: monitor.put(1))
        for wrong in ("text", None, 1.5, True, float("nan"), [1], object()):
            with pytest.raises(InvalidState) as caught:
                await world.do(partial(monitor.fill, wrong))
            assert (caught.value.path, caught.value.expected, caught.value.name) == ("items[0]", "int", world.name())
        with pytest.raises(UsageError, match="max_bytes"):
            await world.do(lambda: monitor.fill(10**100))
        assert await world.do(monitor.snapshot) == {"items": [1]}

    @case
    async def test_variables_and_conditions_are_refused_outside_of_an_operation(self, world: World) -> None:
        monitor = buffer(world, world.connect())
        with pytest.raises(UsageError, match="snapshot"):
            _ = monitor.items
        with pytest.raises(UsageError):
            monitor.items = []
        with pytest.raises(UsageError):
            await world.do(monitor.not_empty.notify)
        with pytest.raises(UsageError):
            await world.do(monitor.not_empty.wait)

    @case
    async def test_an_uncontended_operation_takes_at_most_four_requests(self, world: World) -> None:
        client = world.connect()
        monitor = buffer(world, client)
        await world.do(lambda: monitor.put(1))
        counted = await world.count_requests(client)
        await world.do(lambda: monitor.put(2))
        if client._opened.session.registers.fused:
            assert counted == {"acquire": 1, "store_and_release": 1}
            await world.do(lambda: monitor.size())
            assert counted == {"acquire": 2, "store_and_release": 1, "release": 1}
        else:
            assert counted == {"acquire": 1, "load": 1, "store": 1, "release": 1}
            await world.do(lambda: monitor.size())
            assert counted == {"acquire": 2, "load": 2, "store": 1, "release": 2}


class RefusedMonitorCases:
    @case
    async def test_engines_without_registers_refuse_monitors(self, world: World) -> None:
        client = world.connect()
        if not client.guarantees.registers:
            with pytest.raises(UsageError, match="registers"):
                buffer(world, client)

    @case
    async def test_monitors_and_clients_are_of_the_same_kind(self, world: World) -> None:
        kind: Any = AsyncBuffer if world.api == "sync" else Buffer
        with pytest.raises(UsageError, match="Client"):
            kind(world.connect(), world.name())
