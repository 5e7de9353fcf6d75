"""An async client belongs to the loop of its first await."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
import warnings
import weakref
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

import holdfast
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case

#: How long the watchdog of a client that was closed may keep what belongs to the client.
_GARBAGE_WITHIN: Final = 10.0

_closed_loops: Final = weakref.WeakSet[asyncio.AbstractEventLoop]()


async def elsewhere(use: Any) -> Any:
    """Run the coroutine function ``use`` in a loop of its own, which is closed afterwards."""

    async def noted() -> Any:
        _closed_loops.add(asyncio.get_running_loop())
        return await use()

    return await asyncio.to_thread(lambda: asyncio.run(noted()))


@contextlib.asynccontextmanager
async def connections_lost_with_their_loop() -> AsyncIterator[None]:
    """asyncio warns when a connection becomes garbage after its loop was closed. Here that is intended; so the warnings
    must come here, and not in a later test because the ending watchdog still refers to the connection."""
    _closed_loops.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        deadline = time.monotonic() + _GARBAGE_WITHIN
        while gc.collect() or _closed_loops:
            assert time.monotonic() < deadline, "something still refers to a loop that was closed"
            await asyncio.sleep(0.002)  # the running loop, too, refers to what it has called last


class LoopCases:
    @case
    async def test_a_second_loop_is_refused_while_the_first_is_open(self, async_world: World) -> None:
        client = async_world.connect()
        lease = await client.lock(async_world.name()).acquire()

        async def use() -> None:
            with pytest.raises(holdfast.UsageError, match="loop"):
                await client.lock(async_world.name()).acquire(timeout=0)
            with pytest.raises(holdfast.UsageError, match="loop"):
                await client.ping()

        await elsewhere(use)
        assert lease.held
        await lease.release()

    @case
    async def test_client_reopens_on_another_loop_once_the_first_is_closed(self, async_world: World) -> None:
        async with connections_lost_with_their_loop():
            await self._re_open(async_world)

    async def _re_open(self, world: World) -> None:
        client = world.connect()
        old = await elsewhere(client.lock(world.name()).acquire)
        assert old.held  # renewal does not depend on the loop
        new = await client.lock(world.name()).acquire(timeout=world.soon)
        assert new.held
        assert new.token > old.token
        assert new.owner.partition(":")[0] != old.owner.partition(":")[0], "a client that re-opens has a new identity"
        assert not old.held
        assert old.lost_reason == "closed"
        await new.release()

    @case
    async def test_connecting_needs_no_loop(self, async_world: World) -> None:
        client = await asyncio.to_thread(lambda: async_world.source.open("async"))
        lock = await asyncio.to_thread(lambda: client.lock(async_world.name()))
        async with client, lock as lease:
            assert lease.held

    @case
    async def test_a_client_whose_loop_is_closed_can_still_be_closed(self, async_world: World) -> None:
        async with connections_lost_with_their_loop():
            await self._close_later(async_world)

    async def _close_later(self, world: World) -> None:
        client = world.source.open("async")
        lease = await elsewhere(client.lock(world.name()).acquire)
        await client.close()
        assert lease.lost_reason == "closed"
        assert await world.is_free(world.name())
        with pytest.raises(holdfast.UsageError, match="closed"):
            await client.ping()

    @case
    async def test_a_client_is_closed_by_its_own_loop(self, async_world: World) -> None:
        world, client = async_world, async_world.connect()
        lease = await client.lock(world.name()).acquire()

        async def use() -> None:
            with pytest.raises(holdfast.UsageError, match="loop"):
                await client.close()

        await elsewhere(use)
        assert lease.held
        await lease.release()
