"""Multi-locks: several locks at once, all of them or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast.testing.conformance.actors import settled
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case


def several(world: World, client: Any, *names: str, **policy: Any) -> Any:
    """A multi-lock of these names of the world."""
    return client.multi([client.lock(world.name(name), **policy) for name in names])


class MultiLockCases:
    @case
    async def test_all_locks_are_held_until_the_release(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lease = await actor.do(several(world, client, "a", "b").acquire)
        assert lease.held
        assert not lease.released
        assert 0 < lease.remaining <= lease.ttl
        for name in ("a", "b"):
            state = await world.inspect(client, world.name(name))
            assert [holder.token for holder in state.holders] == [lease.tokens[world.name(name)]]
        await actor.do(lease.release)
        assert lease.released
        assert not lease.held
        assert lease.remaining == 0.0
        assert await world.is_free(world.name("a"))
        assert await world.is_free(world.name("b"))
        with pytest.raises(holdfast.NotHeld):
            lease.check()
        await actor.do(lease.release)

    @case
    async def test_if_one_lock_is_busy_none_is_held(self, world: World) -> None:
        client, actor, holder = world.connect(), world.actor(), world.actor()
        busy = await holder.do(client.lock(world.name("b")).acquire)
        both = several(world, client, "a", "b", "c")
        assert await actor.do(both.try_acquire) is None
        await world.until_free(world.name("a"))
        with pytest.raises(holdfast.AcquireTimeout) as caught:
            await actor.do(lambda: both.acquire(timeout=world.paced(0.5)))
        assert caught.value.name == world.name("b")
        assert caught.value.timeout == world.paced(0.5)
        await world.until_free(world.name("a"))
        assert await world.is_free(world.name("c"))
        await holder.do(busy.release)
        lease = await actor.do(both.try_acquire)
        assert lease is not None
        await actor.do(lease.release)

    @case
    async def test_overlapping_sets_in_opposite_orders_do_not_deadlock(self, world: World) -> None:
        clients, actors = [world.connect(), world.connect()], world.actors(2)
        locks = [several(world, clients[0], "a", "b"), several(world, clients[1], "b", "a")]
        inside: list[int] = []

        def body(lease: Any) -> None:
            inside.append(1)
            assert sum(inside) == 1
            lease.check()
            inside.pop()

        for _ in range(5):
            await asyncio.gather(*(actor.within(lock, body) for actor, lock in zip(actors, locks, strict=True)))

    @case
    async def test_lock_given_twice_is_acquired_once(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lease = await actor.do(several(world, client, "a", "a").acquire)
        assert list(lease.tokens) == [world.name("a")]
        await actor.do(lease.release)
        assert await world.is_free(world.name("a"))

    @case
    async def test_locks_that_the_caller_holds_are_re_entered(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        outer = await actor.do(client.lock(world.name("b")).acquire)
        lease = await actor.do(several(world, client, "a", "b").acquire)
        assert lease.tokens[world.name("b")] == outer.token
        await actor.do(lease.release)
        assert outer.held
        assert await world.is_free(world.name("a"))
        assert not await world.is_free(world.name("b"))
        await actor.do(outer.release)

    @case
    async def test_lost_with_the_first_lock_that_is_lost_and_the_others_stay_held(self, world: World) -> None:
        client, actor, losses = world.connect(ttl=world.lasting), world.actor(), list[Any]()
        lease = await actor.do(several(world, client, "a", "b", "c").acquire)
        lease.on_lost(losses.append)
        await world.do(lambda: client.break_(world.name("b")))
        await world.until(lambda: lease.lost)
        assert lease.lost_reason == "broken"
        assert not lease.held
        with pytest.raises(holdfast.LockLost) as caught:
            lease.check()
        assert caught.value.name == world.name("b")
        assert not await world.is_free(world.name("a"))
        assert not await world.is_free(world.name("c"))
        await world.do(lambda: client.break_(world.name("c")))
        await world.until(lambda: losses)
        with pytest.raises(holdfast.LockLost):
            await actor.do(lease.release)
        assert losses == [lease]
        await world.until_free(world.name("a"))
        await world.until_free(world.name("b"))

    @case
    async def test_waiting_for_the_loss_ends_at_the_loss_and_at_the_release(self, world: World) -> None:
        client, actor, waiter = world.connect(ttl=world.lasting), world.actor(), world.actor()
        lock = several(world, client, "a", "b")
        lease = await actor.do(lock.acquire)
        waiting = waiter.do(lambda: lease.lost.wait(world.soon))
        await world.do(lambda: client.break_(world.name("b")))
        assert await waiting is True
        with pytest.raises(holdfast.LockLost):
            await actor.do(lease.release)
        lease = await actor.do(lambda: lock.acquire(timeout=world.soon))
        waiting = waiter.do(lambda: lease.lost.wait(world.soon))
        await actor.do(lease.release)
        assert await waiting is False

    @case
    async def test_block_that_lost_a_lock_raises_and_releases_the_others(self, world: World) -> None:
        client, actor = world.connect(ttl=world.lasting), world.actor()

        def lose(lease: Any) -> Any:
            async def awaited() -> None:
                await settled(client.break_(world.name("a")))
                await world.until(lambda: lease.lost)

            return awaited() if world.api == "async" else client.break_(world.name("a"))

        with pytest.raises(holdfast.LockLost) as caught:
            await actor.within(several(world, client, "a", "b"), lose)
        assert caught.value.name == world.name("a")
        await world.until_free(world.name("b"))

    @case
    async def test_renewal_extends_every_lock(self, world: World) -> None:
        client, actor = world.connect(ttl=world.lasting), world.actor()
        lease = await actor.do(several(world, client, "a", "b").acquire)
        before = lease.remaining
        await actor.do(lease.renew)
        assert lease.held
        assert lease.remaining > before - 0.5 * lease.ttl
        await actor.do(lease.release)
        with pytest.raises(holdfast.NotHeld):
            await actor.do(lease.renew)

    @case
    async def test_cancelled_acquire_leaves_all_locks_free(self, async_world: World) -> None:
        world = async_world
        client, holder = world.connect(), world.actor()
        busy = await holder.do(client.lock(world.name("b")).acquire)
        acquiring = asyncio.create_task(several(world, client, "a", "b").acquire())

        async def first_is_held() -> bool:
            return not await world.is_free(world.name("a"))

        await world.until(first_is_held)
        acquiring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acquiring
        await world.until_free(world.name("a"))
        await holder.do(busy.release)
        await world.until_free(world.name("b"))

    @case
    async def test_decorated_function_holds_the_locks_of_all_templates(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        decorate: Callable[[Any], Any] = client.locked(["{source}", "{target}"], prefix=world.prefix + "account")

        def check() -> list[str]:
            lease = holdfast.current_lease()
            assert isinstance(lease, (holdfast.MultiLease, holdfast.aio.AsyncMultiLease))
            lease.check()
            return sorted(lease.tokens)

        if world.api == "sync":

            @decorate
            def transfer(source: str, target: str) -> list[str]:
                return check()

        else:

            @decorate
            async def transfer(source: str, target: str) -> list[str]:
                return check()

        names = [f"{world.prefix}account:{each}" for each in "xy"]
        assert await actor.do(lambda: transfer("y", "x")) == names
        assert await actor.do(lambda: transfer("x", "x")) == names[:1]
        assert transfer.lock_for("y", "x").name == ", ".join(names)
