"""Latches: callers wait until the count is zero."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest import mock

import pytest

import holdfast
from holdfast.engines.registers import Listener
from holdfast.primitives.shared_state import SharedState
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case, needs


@contextmanager
def sleeping_waiters() -> Iterator[list[Listener]]:
    """The listeners of the waiters that have looked, and went to sleep."""
    sleep, sleeping = SharedState.sleep, list[Listener]()

    async def noted(self: SharedState, listener: Listener, deadline: float | None) -> bool:
        if listener not in sleeping:
            sleeping.append(listener)
        return await sleep(self, listener, deadline)

    with mock.patch.object(SharedState, "sleep", noted):
        yield sleeping


@needs("registers")
class LatchCases:
    @case
    async def test_waiters_of_several_clients_are_through_when_the_count_is_zero(self, world: World) -> None:
        clients, actors = [world.connect() for _ in range(2)], world.actors(2)
        latches = [client.latch(world.name(), 2) for client in clients]
        limit = world.soon * 3
        waiting = [actor.do(partial(latch.wait, limit)) for actor, latch in zip(actors, latches, strict=True)]
        assert await world.do(latches[0].count) == 2
        await world.do(latches[0].count_down)
        assert await world.do(latches[1].count) == 1
        assert not any(each.done() for each in waiting)
        await world.do(latches[1].count_down)
        assert await asyncio.gather(*waiting) == [True, True]
        assert await world.do(latches[0].count) == 0

    @case
    async def test_open_latch_stays_open_for_late_waiters_and_further_counts(self, world: World) -> None:
        latch = world.connect().latch(world.name(), 1)
        await world.do(latch.count_down)
        await world.do(latch.count_down)
        assert await world.do(latch.count) == 0
        late = world.connect().latch(world.name(), 1)
        assert await world.do(lambda: late.wait(0)) is True

    @case
    async def test_waiting_ends_at_its_timeout(self, world: World) -> None:
        latch = world.connect().latch(world.name(), 1)
        assert await world.do(lambda: latch.wait(0)) is False
        assert await world.do(lambda: latch.wait(world.paced(0.05))) is False
        assert await world.do(latch.count) == 1

    @case
    async def test_reset_closes_it_and_does_not_hold_back_earlier_waiters(self, world: World) -> None:
        client, actors = world.connect(), world.actors(8)
        latch = client.latch(world.name(), 1)
        with sleeping_waiters() as sleeping:
            waiting = [actor.do(lambda: latch.wait(world.soon * 3)) for actor in actors]
            await world.until(lambda: len(sleeping) == len(actors))
            await world.do(world.chain(latch.count_down, latch.reset))
            assert await asyncio.gather(*waiting) == [True] * len(actors)
        assert await world.do(latch.count) == 1
        assert await world.do(lambda: latch.wait(0)) is False

    @case
    async def test_reset_before_the_opening_begins_the_count_again(self, world: World) -> None:
        latch = world.connect().latch(world.name(), 2)
        await world.do(latch.count_down)
        await world.do(latch.reset)
        assert await world.do(latch.count) == 2

    @case
    async def test_first_user_decides_the_count_and_without_one_it_is_not_made(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        unmade = client.latch(world.name(), None)
        assert await world.do(unmade.count) is None
        for method in (unmade.count_down, unmade.reset):
            with pytest.raises(holdfast.UsageError, match="does not exist"):
                await world.do(method)
        waiting = actor.do(lambda: unmade.wait(world.soon * 3))
        await world.do(client.latch(world.name(), 2).count_down)
        assert await world.do(client.latch(world.name(), 7).count) == 1
        await world.do(unmade.count_down)
        assert await waiting is True

    @case
    async def test_many_counts_at_once_are_each_counted_once(self, world: World) -> None:
        clients, actors = [world.connect() for _ in range(2)], world.actors(6)
        latches = [client.latch(world.name(), 19) for client in clients]
        await asyncio.gather(*(actor.do(latches[number % 2].count_down) for number, actor in enumerate(actors * 3)))
        assert await world.do(latches[0].count) == 1

    @case
    async def test_names_of_another_namespace_are_other_latches(self, world: World) -> None:
        one, two = world.connect(), world.connect(namespace=world.prefix + "other")
        await world.do(one.latch(world.name(), 2).count_down)
        assert await world.do(two.latch(world.name(), 2).count) == 2

    @case
    async def test_cancelled_wait_leaves_the_latch_usable(self, async_world: World) -> None:
        latch = async_world.connect().latch(async_world.name(), 1)
        waiting = asyncio.create_task(latch.wait())
        await latch.wait(0.02 * async_world.source.pace)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await latch.count_down()
        assert await latch.wait(0)


class RegistersRefusedCases:
    @case
    async def test_without_registers_latches_and_barriers_are_refused_with_the_reason(self, world: World) -> None:
        client = world.connect()
        for make in (client.latch, client.barrier):
            if client.guarantees.registers:
                continue
            with pytest.raises(holdfast.UsageError, match="no registers"):
                make(world.name(), 1)
