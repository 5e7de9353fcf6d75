"""The async body: cancelled once when the lock is lost, without hiding a cancellation by other code."""

# ruff: noqa: PT012  # the cases test what a whole ``async with`` raises

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import holdfast
from holdfast.testing.conformance.cases.losing import ENTERED, Boom, spin_until_lost
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case


def expiring(world: World, lasting: float = 0.15) -> Any:
    """A lock whose lease expires soon, on a busy machine perhaps before the body is entered."""
    return world.connect().lock(world.name(), ttl=world.paced(lasting), renew=False)


def here() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


class AsyncBodyCases:
    @case
    async def test_loss_cancels_the_body_and_raises_lock_lost(self, async_world: World) -> None:
        began = time.monotonic()
        with pytest.raises(holdfast.LockLost) as caught:
            async with expiring(async_world):
                await asyncio.sleep(async_world.soon * 3)
        assert time.monotonic() - began < async_world.soon
        assert caught.value.reason == "expired"
        assert here().cancelling() == 0
        await asyncio.sleep(0)  # the task continues

    @case
    async def test_an_acquired_lease_entered_later_behaves_the_same(self, async_world: World) -> None:
        lock = expiring(async_world)
        with pytest.raises(holdfast.LockLost):
            async with await lock.acquire(timeout=5):
                await asyncio.sleep(async_world.soon * 3)
        assert here().cancelling() == 0

    @case
    async def test_loss_without_a_block_cancels_nothing(self, async_world: World) -> None:
        lease = await expiring(async_world).acquire()
        assert await lease.lost.wait(async_world.soon) is True
        await asyncio.sleep(0.02)
        assert here().cancelling() == 0
        with pytest.raises(holdfast.LockLost):
            await lease.release()

    @case
    async def test_only_the_innermost_body_is_cancelled_and_only_once(self, async_world: World) -> None:
        lock, seen = expiring(async_world, lasting=ENTERED), []
        with pytest.raises(holdfast.LockLost):
            async with lock:
                with pytest.raises(holdfast.LockLost):
                    async with lock:
                        try:
                            await asyncio.sleep(async_world.soon * 3)
                        except asyncio.CancelledError:
                            seen.append("inner")
                            raise
                assert here().cancelling() == 0
                await asyncio.sleep(0.01)  # not cancelled a second time
                seen.append("outer continues")
        assert seen == ["inner", "outer continues"]

    @case
    async def test_a_body_may_clean_up_before_it_ends(self, async_world: World) -> None:
        steps = []
        with pytest.raises(holdfast.LockLost):
            async with expiring(async_world, lasting=ENTERED):
                try:
                    await asyncio.sleep(async_world.soon * 3)
                finally:
                    await asyncio.sleep(0.01)
                    steps.append("cleaned up")
        assert steps == ["cleaned up"]
        assert here().cancelling() == 0

    @case
    async def test_body_that_swallows_the_cancellation_raises_lock_lost_at_its_end(self, async_world: World) -> None:
        with pytest.raises(holdfast.LockLost):
            async with expiring(async_world, lasting=ENTERED):
                try:
                    await asyncio.sleep(async_world.soon * 3)
                except asyncio.CancelledError:
                    pass
                await asyncio.sleep(0.01)
        assert here().cancelling() == 0

    @case
    async def test_body_that_replaces_the_cancellation_by_its_own_error_raises_that(self, async_world: World) -> None:
        with pytest.raises(Boom) as caught:
            async with expiring(async_world, lasting=ENTERED):
                try:
                    await asyncio.sleep(async_world.soon * 3)
                except asyncio.CancelledError:
                    raise Boom("the body's own") from None
        assert caught.value.__notes__ == [f"lock {async_world.name()!r} lost: expired"]
        assert here().cancelling() == 0

    @case
    async def test_a_body_that_never_awaits_is_not_cancelled_afterwards(self, async_world: World) -> None:
        """The loss is posted to the loop while the body is being left: it must not cancel anything."""
        with pytest.raises(holdfast.LockLost):
            async with expiring(async_world, lasting=ENTERED) as lease:
                spin_until_lost(lease)
        await asyncio.sleep(0.02)
        assert here().cancelling() == 0

    @case
    async def test_outer_timeout_takes_precedence_over_the_loss(self, async_world: World) -> None:
        async def work() -> None:
            async with asyncio.timeout(None) as limit:
                async with expiring(async_world, lasting=ENTERED) as lease:
                    spin_until_lost(lease)
                    limit.reschedule(asyncio.get_running_loop().time())  # both are due at the next await
                    await asyncio.sleep(async_world.soon * 3)

        with pytest.raises(TimeoutError) as caught:
            await asyncio.create_task(work())
        assert not isinstance(caught.value, holdfast.LockError)

    @case
    async def test_inner_timeout_does_not_affect_the_lock(self, async_world: World) -> None:
        world = async_world
        async with world.connect().lock(world.name()) as lease:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(async_world.soon)
            assert lease.held
        assert await world.is_free(world.name())

    @case
    async def test_cancellation_by_the_user_takes_precedence_over_the_loss(self, async_world: World) -> None:
        async def work() -> None:
            async with expiring(async_world, lasting=ENTERED) as lease:
                spin_until_lost(lease)
                here().cancel()
                await asyncio.sleep(async_world.soon * 3)

        task = asyncio.create_task(work())
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    @case
    async def test_a_cancelled_body_releases_the_lock(self, async_world: World) -> None:
        world, entered = async_world, asyncio.Event()

        async def work() -> None:
            async with world.connect().lock(world.name()):
                entered.set()
                await asyncio.sleep(async_world.soon * 3)

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await world.until_free(world.name())

    @case
    async def test_failing_task_group_takes_precedence_over_the_loss(self, async_world: World) -> None:
        lost = asyncio.Event()

        async def hold() -> None:
            async with expiring(async_world, lasting=ENTERED) as lease:
                spin_until_lost(lease)
                lost.set()
                await asyncio.sleep(async_world.soon * 3)

        async def fail() -> None:
            await lost.wait()
            raise Boom("a sibling")

        async def fail_immediately() -> None:
            raise Boom("a sibling")

        for sibling in (fail, fail_immediately):
            with pytest.raises(ExceptionGroup) as caught:
                async with asyncio.TaskGroup() as group:
                    group.create_task(hold())
                    group.create_task(sibling())
            boom, unexpected = caught.value.split(Boom)
            assert boom is not None
            # If the loss came before the sibling failed, it is reported too. It never hides the sibling's error.
            assert unexpected is None or unexpected.split(holdfast.LockLost)[1] is None
            lost.clear()
            await async_world.until_free(async_world.name())

    @case
    async def test_breaking_the_lock_cancels_the_body_too(self, async_world: World) -> None:
        world, operator = async_world, async_world.connect()
        with pytest.raises(holdfast.LockLost) as caught:
            async with world.connect(ttl=world.lasting).lock(world.name()):
                await operator.break_(world.name())
                await asyncio.sleep(async_world.soon * 3)
        assert caught.value.reason == "broken"

    @case
    async def test_a_blocked_event_loop_does_not_lose_the_lock(self, async_world: World) -> None:
        world = async_world
        async with world.connect(ttl=world.lasting).lock(world.name()) as lease:
            time.sleep(1.05 * lease.ttl)  # noqa: ASYNC251  # blocks the event loop on purpose
            assert lease.held
            assert not await world.is_free(world.name())
