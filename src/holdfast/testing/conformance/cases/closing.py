"""Closing a client: all locks are released, all holders are notified, and later use is refused."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case


class ClosingCases:
    @case
    async def test_close_releases_all_locks_and_notifies_every_lease(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        notified: list[Any] = []
        names = [world.name(str(n)) for n in range(3)]
        leases = [await actor.do(client.lock(name, on_lost=notified.append).acquire) for name in names]
        began = clock.now()
        await world.do(client.close)
        assert clock.now() - began < world.paced(1.5)
        await world.until(lambda: len(notified) == 3)
        assert {id(lease) for lease in notified} == {id(lease) for lease in leases}
        for lease, name in zip(leases, names, strict=True):
            assert not lease.held
            assert lease.lost_reason == "closed"
            with pytest.raises(holdfast.LockLost, match="closed"):
                lease.check()
            with pytest.raises(holdfast.LockLost, match="closed"):
                await actor.do(lease.release)
            assert await world.is_free(name)

    @case
    async def test_closed_client_refuses_every_operation(self, world: World) -> None:
        client = world.connect()
        lock = client.lock(world.name())
        lease = await world.do(lock.acquire)
        for _ in range(2):  # idempotent
            await world.do(client.close)

        for attempt in (
            lock.acquire,
            lock.try_acquire,
            client.ping,
            lambda: client.inspect(world.name()),
            lambda: client.break_(world.name()),
        ):
            with pytest.raises(holdfast.UsageError, match="closed"):
                await world.do(attempt)
        with pytest.raises(holdfast.UsageError, match="closed"):
            await world.list_locks(client)
        with pytest.raises(holdfast.UsageError, match="closed"):
            await world.actor().within(lock, lambda lease: None)
        assert not lease.held

    @case
    async def test_a_client_that_was_never_used_can_be_closed(self, world: World) -> None:
        client = world.connect()
        await world.do(client.close)
        with pytest.raises(holdfast.UsageError):
            await world.do(client.lock(world.name()).acquire)

    @pytest.mark.parametrize("fair", [False, True])
    @case
    async def test_close_wakes_waiting_callers(self, world: World, fair: bool) -> None:
        """One caller waits at the engine, one behind it in the process; both get an error and leave nothing behind."""
        holder, client, (one, two) = world.connect(), world.connect(), world.actors(2)
        lease = await world.do(holder.lock(world.name()).acquire)
        waiting = [one.do(client.lock(world.name(), fair=fair).acquire)]
        await world.until_waiting(holder, world.name())
        waiting.append(two.do(client.lock(world.name(), fair=fair).acquire))
        if fair:
            await world.until_waiting(holder, world.name(), 2)
        else:
            await world.until_queued(client, world.name(), elsewhere=1)
        began = clock.now()
        await world.do(client.close)
        for future in waiting:
            with pytest.raises(holdfast.UsageError, match="closed"):
                await future
        assert clock.now() - began < world.soon
        assert lease.held
        await world.do(lease.release)
        assert await world.is_free(world.name())
        assert (await world.inspect(holder, world.name())).waiters == 0

    @case
    async def test_close_does_not_affect_other_clients(self, world: World) -> None:
        one, two = world.connect(), world.connect()
        lease = await world.do(two.lock(world.name()).acquire)
        await world.do(one.ping)
        await world.do(one.close)
        assert lease.held
        assert not await world.is_free(world.name())
        await world.do(lease.release)

    @case
    async def test_a_client_is_a_context_manager(self, world: World) -> None:
        client = world.connect()
        assert await world.actor().within(client, lambda entered: entered is client) is True
        with pytest.raises(holdfast.UsageError):
            await world.do(client.lock(world.name()).acquire)
