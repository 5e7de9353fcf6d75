"""Double barriers: members enter together and leave together, and a dead one blocks no other."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

import holdfast
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case, needs


def members(world: World, number: int, **options: Any) -> list[Any]:
    return [world.connect(**options).barrier(world.name(), number) for _ in range(number)]


async def together(actors: list[Any], barriers: list[Any], method: str, limit: float) -> None:
    """Have each actor call ``method`` of its barrier."""
    calls = [actor.do(partial(getattr(each, method), limit)) for actor, each in zip(actors, barriers, strict=True)]
    assert await asyncio.gather(*calls) == [True] * len(calls)


@needs("registers", "permits")
class BarrierCases:
    @case
    async def test_members_enter_together_and_leave_together_in_each_round(self, world: World) -> None:
        barriers, actors = members(world, 2), world.actors(2)
        limit = world.soon * 3
        for _ in range(3):
            first = actors[0].do(partial(barriers[0].enter, limit))
            assert await actors[1].do(partial(barriers[1].enter, limit)) is True
            assert await first is True
            assert await actors[1].do(partial(barriers[1].leave, 0)) is False  # the other one is still inside
            assert await actors[0].do(partial(barriers[0].leave, limit)) is True

    @case
    async def test_timeout_of_an_entering_member_takes_it_out(self, world: World) -> None:
        barriers, actors = members(world, 2), world.actors(2)
        assert await actors[0].do(partial(barriers[0].enter, world.paced(0.4))) is False
        assert await actors[1].do(partial(barriers[1].enter, 0)) is False
        with pytest.raises(holdfast.NotHeld):
            await actors[0].do(partial(barriers[0].leave, 0))
        waiting = actors[0].do(partial(barriers[0].enter, world.soon * 3))
        assert await actors[1].do(partial(barriers[1].enter, world.soon * 3)) is True
        assert await waiting is True
        leaving = actors[0].do(barriers[0].leave)
        assert await actors[1].do(barriers[1].leave) is True
        assert await leaving is True

    @case
    async def test_late_comer_waits_for_the_next_round(self, world: World) -> None:
        barriers, actors, limit = members(world, 2), world.actors(3), world.soon * 3
        late = world.connect().barrier(world.name(), 2)
        await together(actors[:2], barriers, "enter", limit)
        assert await actors[2].do(partial(late.enter, 0)) is False
        waiting = actors[2].do(partial(late.enter, limit))
        await together(actors[:2], barriers, "leave", limit)
        assert not waiting.done()
        assert await actors[0].do(partial(barriers[0].enter, limit)) is True
        assert await waiting is True
        await asyncio.gather(actors[0].do(barriers[0].leave), actors[2].do(late.leave))

    @case
    async def test_member_that_dies_inside_does_not_block_those_that_leave(self, world: World) -> None:
        barriers, actors, limit = members(world, 2, ttl=world.lasting), world.actors(2), world.soon * 3
        await together(actors, barriers, "enter", limit)
        leaving = actors[0].do(partial(barriers[0].leave, limit))
        await actors[1].do(barriers[1]._client.close)  # as if it died: its permit is gone
        assert await leaving is True

    @case
    async def test_member_that_dies_while_it_waits_is_not_counted(self, world: World) -> None:
        barriers, actors, limit = members(world, 2), world.actors(3), world.soon * 3
        dying = world.connect()
        waiting = actors[2].do(partial(dying.barrier(world.name(), 2).enter, limit))

        async def joined() -> bool:
            return len((await world.inspect(dying, world.name())).holders) == 1

        await world.until(joined)
        await world.do(dying.close)
        with pytest.raises(holdfast.LockError):
            await waiting
        assert await actors[0].do(partial(barriers[0].enter, world.paced(0.4))) is False
        waiting = actors[0].do(partial(barriers[0].enter, limit))
        assert await actors[1].do(partial(barriers[1].enter, limit)) is True
        assert await waiting is True
        await asyncio.gather(*(actor.do(each.leave) for actor, each in zip(actors, barriers, strict=False)))

    @case
    async def test_wrong_uses_are_refused(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        barrier = client.barrier(world.name(), 1)
        assert await actor.do(barrier.enter)
        with pytest.raises(holdfast.UsageError, match="entered already"):
            await actor.do(barrier.enter)
        assert await actor.do(barrier.leave)
        with pytest.raises(holdfast.NotHeld):
            await actor.do(barrier.leave)
