"""Cancelling an async acquire or release, at any moment: no lock and no waiter is left behind."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from holdfast.testing.conformance.cases.loops import connections_lost_with_their_loop
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case


async def cancel_after(steps: int, task: asyncio.Task[Any]) -> Any:
    """Cancel ``task`` after ``steps`` iterations of the loop. Returns its result if it had ended before, else None."""
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


class CancellingCases:
    @pytest.mark.parametrize("where", ["same client", "other client"])
    @case
    async def test_acquire_cancelled_while_waiting_leaves_no_waiter(self, async_world: World, where: str) -> None:
        world, client = async_world, async_world.connect()
        other = client if where == "same client" else world.connect()
        lease = await client.lock(world.name()).acquire()
        waiting = asyncio.create_task(other.lock(world.name()).acquire())
        if where == "same client":
            await world.until_queued(client, world.name())
        else:
            await world.until_waiting(client, world.name())
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        async def no_waiter() -> bool:
            return (await world.inspect(client, world.name())).waiters == 0

        assert lease.held
        # It leaves the queue in the background. Until then, others wait behind it, or a release may hand it the lock.
        await world.until(no_waiter)
        await lease.release()
        assert await world.is_free(world.name())

    @case
    async def test_acquire_of_a_free_lock_cancelled_at_any_step_leaves_it_free(self, async_world: World) -> None:
        world, client = async_world, async_world.connect()
        await client.ping()
        for steps in range(12):
            name = world.name(str(steps))
            lease = await cancel_after(steps, asyncio.create_task(client.lock(name).acquire()))
            if lease is not None:
                assert lease.held
                await lease.release()
            other = world.connect()
            taken = await other.lock(name).acquire(timeout=world.soon)  # long before the end of the ttl of 30 s
            await taken.release()

    @case
    async def test_acquire_cancelled_around_the_moment_of_the_grant_leaves_the_lock_free(
        self, async_world: World
    ) -> None:
        """The waiter is cancelled a number of steps before or after the lock is granted to it."""
        world, client, other = async_world, async_world.connect(), async_world.connect()
        for steps in range(-3, 9):
            for rival in (client, other):
                lease = await client.lock(world.name()).acquire(timeout=world.soon)
                waiting = asyncio.create_task(rival.lock(world.name()).acquire())
                await (world.until_queued if rival is client else world.until_waiting)(client, world.name())
                cancelling = cancel_after(max(0, steps), waiting)
                releasing = asyncio.create_task(_later(max(0, -steps), lease.release))
                got = await cancelling
                await releasing
                if got is not None:
                    await got.release()
        taken = await world.connect().lock(world.name()).acquire(timeout=world.soon)
        await taken.release()

    @case
    async def test_many_acquires_with_short_timeouts_leave_the_lock_free(self, async_world: World) -> None:
        world, clients = async_world, [async_world.connect() for _ in range(2)]

        async def enter_briefly(number: int) -> int:
            try:
                async with asyncio.timeout(0.0004 * number), clients[number % 2].lock(world.name()):
                    await asyncio.sleep(0.0002)
            except TimeoutError:
                return 0
            return 1

        entered = sum(await asyncio.gather(*(enter_briefly(number) for number in range(40))))
        assert entered < 40
        taken = await world.connect().lock(world.name()).acquire(timeout=world.soon)
        assert taken.held
        await taken.release()

    @case
    async def test_acquire_timed_out_by_wait_for_leaves_the_lock_free(self, async_world: World) -> None:
        world, client = async_world, async_world.connect()
        lease = await world.connect().lock(world.name()).acquire()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.lock(world.name()).acquire(), world.paced(0.02))
        await lease.release()
        taken = await client.lock(world.name()).acquire(timeout=world.soon)
        await taken.release()

    @case
    async def test_a_cancelled_release_is_finished_in_the_background(self, async_world: World) -> None:
        world, client = async_world, async_world.connect()
        for steps in range(6):
            lease = await client.lock(world.name(str(steps))).acquire()
            await cancel_after(steps, asyncio.create_task(lease.release()))
            if lease.held:  # cancelled before it had started
                assert steps == 0
                await lease.release()
            await world.until_free(world.name(str(steps)))

    @pytest.mark.parametrize("busy", [False, True])
    @case
    async def test_loop_closed_during_an_acquire_leaves_the_lock_free(self, async_world: World, busy: bool) -> None:
        """Withdrawing must not depend on the loop: it is closed before the acquire has ended, without cancelling it."""
        async with connections_lost_with_their_loop():
            await self._close_the_loop(async_world, busy)

    async def _close_the_loop(self, world: World, busy: bool) -> None:
        client = world.source.open("async")
        held = await world.connect().lock(world.name()).acquire() if busy else None

        async def begin() -> asyncio.Task[Any]:
            await client.ping()
            task = asyncio.create_task(client.lock(world.name()).acquire())
            await asyncio.sleep(0)
            return task

        def in_a_loop_of_its_own() -> None:
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(lambda loop, context: None)  # expected: "Task was destroyed but it is pending"
            task = loop.run_until_complete(begin())
            if task.done():
                loop.run_until_complete(task.result().release())
            loop.close()

        await asyncio.to_thread(in_a_loop_of_its_own)
        gc.collect()
        if held is not None:
            await held.release()
        await world.until_free(world.name())
        await client.close()


async def _later(steps: int, call: Any) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)
    await call()
