"""Acquiring: with one attempt, with a timeout, without one; and values that are not timeouts."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case


class AcquiringCases:
    @case
    async def test_free_lock_is_acquired_immediately(self, world: World) -> None:
        client, name = world.connect(), world.name()
        lease = await world.do(lambda: client.lock(name).acquire(timeout=0))
        assert lease.held
        assert lease.name == name
        assert isinstance(lease.token, int)
        assert lease.token > 0
        assert lease.lost_reason is None
        assert not lease.lost
        assert 0 < lease.remaining <= lease.ttl == 30.0
        await world.do(lease.release)
        assert not lease.held
        assert lease.remaining == 0.0
        assert await world.is_free(name)

    @pytest.mark.parametrize("where", ["same client", "other client"])
    @case
    async def test_try_acquire_of_a_busy_lock_is_none(self, world: World, where: str) -> None:
        client, (one, two) = world.connect(), world.actors(2)
        other = client if where == "same client" else world.connect()
        lease = await one.do(client.lock(world.name()).acquire)
        assert await two.do(other.lock(world.name()).try_acquire) is None
        await one.do(lease.release)
        second = await two.do(other.lock(world.name()).try_acquire)
        assert second.held
        await two.do(second.release)

    @case
    async def test_try_acquire_that_succeeds_is_a_context_manager(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lease = await actor.do(client.lock(world.name()).try_acquire)
        held = await actor.within(lease, lambda entered: entered is lease and entered.held)
        assert held is True
        assert not lease.held
        assert await world.is_free(world.name())

    @pytest.mark.parametrize("where", ["same client", "other client"])
    @case
    async def test_timeout_is_kept_and_never_shortened(self, world: World, where: str) -> None:
        client, (one, two) = world.connect(), world.actors(2)
        other = client if where == "same client" else world.connect()
        lease = await one.do(client.lock(world.name()).acquire)
        await two.do(other.ping)  # connects, which is not part of the measured time
        long, short = world.paced(0.6), world.paced(0.5)  # long enough for an answer: otherwise EngineUnavailable
        began = clock.now()
        with pytest.raises(holdfast.AcquireTimeout) as caught:
            await two.do(lambda: other.lock(world.name()).acquire(timeout=long))
        assert long <= clock.now() - began < long + world.paced(1.0)
        assert isinstance(caught.value, holdfast.LockError)
        assert isinstance(caught.value, TimeoutError)
        assert (caught.value.name, caught.value.timeout) == (world.name(), long)
        assert pickle.loads(pickle.dumps(caught.value)).timeout == long
        began = clock.now()
        assert await two.do(lambda: other.lock(world.name()).try_acquire(timeout=short)) is None
        assert clock.now() - began >= short
        await one.do(lease.release)

    @case
    async def test_timed_out_acquire_leaves_no_waiter(self, world: World) -> None:
        one, two = world.connect(), world.connect()
        lease = await world.do(one.lock(world.name()).acquire)
        assert await world.do(lambda: two.lock(world.name()).try_acquire(timeout=world.paced(0.5))) is None
        await world.until_waiters_are_gone(one, world.name())
        await world.do(lease.release)
        assert await world.is_free(world.name())

    @pytest.mark.parametrize("where", ["same client", "other client"])
    @case
    async def test_acquire_without_a_timeout_waits_until_the_lock_is_free(self, world: World, where: str) -> None:
        client, (one, two) = world.connect(), world.actors(2)
        other = client if where == "same client" else world.connect()
        lease = await one.do(client.lock(world.name()).acquire)
        waiting = two.do(other.lock(world.name()).acquire)
        if where == "same client":
            await world.until_queued(client, world.name())
        else:
            await world.until_waiting(client, world.name())
        assert not waiting.done()
        began = clock.now()
        await one.do(lease.release)
        second = await waiting
        assert clock.now() - began < world.soon
        assert second.held
        assert second.token > lease.token
        await two.do(second.release)

    @pytest.mark.parametrize("bad", [-1, -0.001, math.nan, True, False, math.inf])
    @case
    async def test_invalid_timeout_is_a_value_error(self, world: World, bad: Any) -> None:
        client = world.connect()
        lock = client.lock(world.name())
        for attempt in (
            lambda: lock.acquire(timeout=bad),
            lambda: lock.try_acquire(timeout=bad),
            lambda: client.lock(world.name(), timeout=bad),
        ):
            with pytest.raises(ValueError, match="timeout"):
                await world.do(attempt)
        assert await world.is_free(world.name())

    @case
    async def test_with_block_uses_the_timeout_of_the_lock(self, world: World) -> None:
        client, (one, two) = world.connect(), world.actors(2)
        lease = await one.do(client.lock(world.name()).acquire)
        entered: list[Any] = []
        for timeout in (0, world.paced(0.5)):
            began = clock.now()
            with pytest.raises(holdfast.AcquireTimeout):
                await two.within(client.lock(world.name(), timeout=timeout), entered.append)
            assert clock.now() - began >= timeout
        assert entered == []
        waiting = two.within(client.lock(world.name(), timeout=world.soon), lambda lease: lease.held)
        await world.until_queued(client, world.name())
        await one.do(lease.release)
        assert await waiting is True
        assert await world.is_free(world.name())

    @case
    async def test_lock_object_is_a_name_and_a_policy_and_may_be_shared(self, world: World) -> None:
        client, (one, two) = world.connect(), world.actors(2)
        lock = client.lock(world.name())
        assert lock.name == world.name()
        assert not hasattr(lock, "release")
        first = one.within(lock, lambda lease: lease.token)
        second = two.within(lock, lambda lease: lease.token)
        tokens = [await first, await second]
        assert tokens[0] != tokens[1]
        assert await world.is_free(world.name())
