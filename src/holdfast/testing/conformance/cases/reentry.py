"""Re-entry: leases of one thread or task on one name share one hold; those of other callers do not."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case


class ReentryCases:
    @case
    async def test_every_acquire_returns_a_new_handle_on_the_same_hold(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lock = client.lock(world.name())
        first = await actor.do(lock.acquire)
        second = await actor.do(lock.acquire)
        third = await actor.do(client.lock(world.name()).try_acquire)  # another Lock object, the same name
        assert len({id(lease) for lease in (first, second, third)}) == 3
        assert first.token == second.token == third.token
        assert first.owner == second.owner == third.owner
        for lease in (first, second, third):
            await actor.do(lease.release)
        assert await world.is_free(world.name())

    @case
    async def test_re_entry_sends_no_request(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        asked = await world.count_requests(client)
        outer = await actor.do(client.lock(world.name()).acquire)
        before = asked.copy()
        assert before["acquire"] == 1
        for _ in range(5):
            inner = await actor.do(client.lock(world.name()).acquire)
            await actor.do(inner.release)
        assert asked == before
        await actor.do(outer.release)
        assert asked["release"] == 1

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
    @case
    async def test_handles_are_released_in_any_order_and_the_lock_with_the_last(
        self, world: World, order: tuple[int, ...]
    ) -> None:
        client, actor = world.connect(), world.actor()
        leases = [await actor.do(client.lock(world.name()).acquire) for _ in range(3)]
        for place in order:
            assert leases[place].held
            assert not await world.is_free(world.name())
            await actor.do(leases[place].release)
            assert not leases[place].held
        assert await world.is_free(world.name())

    @case
    async def test_release_is_idempotent_per_handle(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        outer = await actor.do(client.lock(world.name()).acquire)
        inner = await actor.do(client.lock(world.name()).acquire)
        for _ in range(3):
            await actor.do(inner.release)
        assert outer.held
        assert not await world.is_free(world.name())
        for _ in range(2):
            await actor.do(outer.release)
        assert await world.is_free(world.name())

    @case
    async def test_release_after_release_does_not_touch_the_next_holder(self, world: World) -> None:
        one, two = world.connect(), world.connect()
        first = await world.do(one.lock(world.name()).acquire)
        await world.do(first.release)
        second = await world.do(two.lock(world.name()).acquire)
        await world.do(first.release)
        assert second.held
        assert not await world.is_free(world.name())
        await world.do(second.release)

    @case
    async def test_any_thread_or_task_may_release(self, world: World) -> None:
        client, (one, two) = world.connect(), world.actors(2)
        lease = await one.do(client.lock(world.name()).acquire)
        await two.do(lease.release)
        assert not lease.held
        assert await world.is_free(world.name())
        again = await one.do(client.lock(world.name()).try_acquire)  # the first hold is not re-entered
        assert again.token > lease.token
        await one.do(again.release)

    @case
    async def test_another_thread_or_task_does_not_re_enter(self, world: World) -> None:
        client, (one, two) = world.connect(), world.actors(2)
        lease = await one.do(client.lock(world.name()).acquire)
        assert await two.do(client.lock(world.name()).try_acquire) is None
        await one.do(lease.release)

    @case
    async def test_another_client_does_not_re_enter(self, world: World) -> None:
        one, two, actor = world.connect(), world.connect(), world.actor()
        lease = await actor.do(one.lock(world.name()).acquire)
        assert await actor.do(two.lock(world.name()).try_acquire) is None
        await actor.do(lease.release)

    @pytest.mark.parametrize("other", [{"ttl": 20}, {"fair": True}, {"renew": False}, {"max_hold": 20}], ids=str)
    @case
    async def test_re_entry_with_another_policy_is_refused(self, world: World, other: dict[str, Any]) -> None:
        client, actor = world.connect(), world.actor()
        lease = await actor.do(client.lock(world.name()).acquire)
        # An engine without order refuses ``fair`` earlier.
        for attempt in ("acquire", "try_acquire"):
            with pytest.raises(holdfast.UsageError, match=r"with another ttl, fair|leave fair at False"):
                await actor.do(getattr(client.lock(world.name(), **other), attempt))
        assert lease.held
        await actor.do(lease.release)
        assert await world.is_free(world.name())

    @case
    async def test_lock_that_is_not_reentrant_is_busy_for_its_holder_too(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lock = client.lock(world.name(), reentrant=False)
        lease = await actor.do(lock.acquire)
        assert await actor.do(lock.try_acquire) is None
        with pytest.raises(holdfast.AcquireTimeout):
            await actor.do(lambda: lock.acquire(timeout=world.paced(0.5)))
        with pytest.raises(holdfast.AcquireTimeout):
            await actor.do(lambda: client.lock(world.name()).acquire(timeout=world.paced(0.5)))
        await actor.do(lease.release)
        assert await world.is_free(world.name())

    @case
    async def test_with_blocks_nest(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lock = client.lock(world.name())
        outer = await actor.do(lock.acquire)
        inner_token = await actor.within(lock, lambda lease: lease.token)
        assert inner_token == outer.token
        assert outer.held
        await actor.do(outer.release)
        assert await world.is_free(world.name())
