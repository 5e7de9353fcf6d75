"""How long a hold lives: while one of its leases is referenced, even if the caller that acquired it has ended."""

# ruff: noqa: PT031  # a handle becomes garbage when the last frame that refers to it ends, not at the ``del``

from __future__ import annotations

import asyncio
import functools
import gc
import warnings
from typing import Any

import pytest

from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case


class LifetimeCases:
    @case
    async def test_a_hold_outlives_the_thread_or_task_that_acquired_it(self, world: World) -> None:
        client, actor = world.connect(ttl=world.lasting), world.actor()
        lease = await actor.do(client.lock(world.name()).acquire)
        await actor.end()
        await world.until_renewed(lease)
        assert not await world.is_free(world.name())
        await world.do(lease.release)
        assert await world.is_free(world.name())

    @case
    async def test_new_caller_never_re_enters_the_hold_of_a_caller_that_has_ended(self, world: World) -> None:
        """Python reuses idents of threads and addresses of tasks; a new caller must not get an old identity."""
        client, actor = world.connect(), world.actor()
        lease = await actor.do(client.lock(world.name()).acquire)
        await actor.end()
        del actor
        for _ in range(10):
            newcomer = world.actor()
            assert await newcomer.do(client.lock(world.name()).try_acquire) is None
            await newcomer.end()
        await world.do(lease.release)

    @case
    async def test_acquiring_inside_wait_for_and_gather_works(self, async_world: World) -> None:
        client = async_world.connect(ttl=async_world.lasting)
        one, two = client.lock(async_world.name("one")), client.lock(async_world.name("two"))
        first = await asyncio.wait_for(client.lock(async_world.name()).acquire(), 5)
        second, third = await asyncio.gather(one.acquire(), two.acquire(timeout=async_world.soon))
        gc.collect()
        for lease in (first, second, third):
            await async_world.until_renewed(lease)
        await asyncio.gather(*(lease.release() for lease in (first, second, third)))
        assert await async_world.is_free(async_world.name())

    @case
    async def test_a_dropped_handle_frees_the_lock_with_a_warning(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lease = await actor.do(client.lock(world.name()).acquire)
        asked = await world.count_requests(client)
        with pytest.warns(ResourceWarning, match="dropped without release") as warned:
            del lease
            await world.until(lambda: gc.collect() >= 0 and warned.list)  # an actor's frame may keep it for a moment
        assert not asked, "a finaliser must not send requests"
        await world.until_free(world.name())
        anew = await actor.do(client.lock(world.name()).acquire)  # the old hold is not re-entered
        assert not await world.is_free(world.name())
        await actor.do(anew.release)

    @case
    async def test_lock_is_held_until_its_last_handle_is_released(self, world: World) -> None:
        client, actor = world.connect(ttl=world.lasting), world.actor()
        kept = await actor.do(client.lock(world.name()).acquire)
        dropped = await actor.do(client.lock(world.name()).acquire)
        with pytest.warns(ResourceWarning) as warned:
            del dropped
            await world.until(lambda: gc.collect() >= 0 and warned.list)
        await world.until_renewed(kept)
        assert not await world.is_free(world.name())
        await actor.do(kept.release)
        assert await world.is_free(world.name())

    @pytest.mark.parametrize("end", ["released", "lost", "closed"])
    @case
    async def test_handle_that_has_ended_is_dropped_without_a_warning(self, world: World, end: str) -> None:
        client, actor = world.connect(), world.actor()
        policy = {"ttl": world.paced(0.15), "renew": False} if end == "lost" else {}
        lease = await actor.do(client.lock(world.name(), **policy).acquire)
        endings: Any = {
            "released": lease.release,
            "lost": functools.partial(lease.lost.wait, world.soon),
            "closed": client.close,
        }
        await actor.do(endings[end])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del lease, endings
            gc.collect()
        assert [str(warning.message) for warning in caught if warning.category is ResourceWarning] == []
