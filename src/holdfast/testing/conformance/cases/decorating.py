"""Decorated functions: a call holds the lock that its arguments name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import holdfast
from holdfast._runtime import clock
from holdfast.testing.conformance.actors import settled
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case


def decorated(world: World, client: Any, body: Callable[[Any], Any], **options: Any) -> Any:
    """A function, or a coroutine function, of one argument: a name in this world."""

    def function(name: str) -> Any:
        return body(name)

    async def coroutine(name: str) -> Any:
        return await settled(body(name))

    return client.locked("{name}", **options)(function if world.api == "sync" else coroutine)


def held_now(name: str) -> bool:
    lease = holdfast.current_lease()
    return lease is not None and lease.held and lease.name == name


class DecoratingCases:
    @case
    async def test_a_call_holds_the_lock_that_its_arguments_name(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        call = decorated(world, client, held_now)
        for name in (world.name("a"), world.name("b")):
            assert await actor.do(partial(call, name)) is True
            assert await world.is_free(name)
            assert call.lock_for(name).name == name

    @case
    async def test_a_call_that_finds_its_lock_busy_is_skipped(self, world: World) -> None:
        one, two, actor = world.connect(), world.connect(), world.actor()
        call = decorated(world, one, held_now, on_busy="skip", default="busy")
        other = await world.do(two.lock(world.name()).acquire)
        assert await actor.do(lambda: call(world.name())) == "busy"
        await world.do(other.release)
        assert await actor.do(lambda: call(world.name())) is True
        assert call.skipped() == 1

    @case
    async def test_at_least_keeps_the_lock_after_the_call(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lasting = world.paced(0.4)
        call = decorated(world, client, held_now, at_least=lasting, on_busy="skip", default="busy")
        began = clock.now()
        assert await actor.do(lambda: call(world.name())) is True
        again = await actor.do(lambda: call(world.name()))
        assert again == "busy" or clock.now() - began >= lasting
        await world.until_free(world.name())
        assert clock.now() - began >= lasting

    @case
    async def test_a_generator_holds_its_lock_until_it_is_closed(self, world: World) -> None:
        client, actor = world.connect(), world.actor()

        def numbers(name: str) -> Iterator[bool]:
            while True:
                yield held_now(name)

        async def numbers_async(name: str) -> AsyncIterator[bool]:
            while True:
                yield held_now(name)

        generator = client.locked("{name}")(numbers if world.api == "sync" else numbers_async)(world.name())
        step = generator.__next__ if world.api == "sync" else generator.__anext__
        for _ in range(2):
            assert await actor.do(step) is True
            assert not await world.is_free(world.name())
        await world.do(generator.close if world.api == "sync" else generator.aclose)  # by another caller
        assert await world.is_free(world.name())
