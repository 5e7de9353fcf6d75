"""Detached locks: a ticket hands a held lock to another client, with a new token."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

import holdfast
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case, needs


@needs("detach")
class DetachingCases:
    @case
    async def test_ticket_hands_the_lock_to_another_client_with_a_larger_token(self, world: World) -> None:
        one, two, actor = world.connect(), world.connect(), world.actor()
        lease = await actor.do(one.lock(world.name()).acquire)
        ticket = await actor.do(lease.detach)
        assert not lease.held
        assert lease.released
        assert lease.lost_reason is None
        assert not await world.is_free(world.name())
        attached = await actor.do(lambda: two.attach(ticket))
        assert attached.held
        assert attached.name == world.name()
        assert attached.token > lease.token
        assert attached.owner != lease.owner
        assert not await world.is_free(world.name())
        state = await world.inspect(one, world.name())
        assert [(each.owner, each.token) for each in state.holders] == [(attached.owner, attached.token)]
        await actor.do(attached.release)
        assert await world.is_free(world.name())

    @case
    async def test_ticket_is_used_once(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        ticket = await actor.do((await actor.do(client.lock(world.name()).acquire)).detach)
        clients, actors = [world.connect(), world.connect()], world.actors(2)
        answers: list[Any] = await asyncio.gather(
            *(actor.do(partial(client.attach, ticket)) for client, actor in zip(clients, actors, strict=True)),
            return_exceptions=True,
        )
        (error,) = [answer for answer in answers if isinstance(answer, BaseException)]
        assert isinstance(error, holdfast.NotHeld)
        (lease,) = [answer for answer in answers if answer is not error]
        assert lease.held
        with pytest.raises(holdfast.NotHeld):
            await actor.do(lambda: client.attach(ticket))
        assert lease.held
        await actor.do(lease.release)
        with pytest.raises(holdfast.NotHeld):
            await actor.do(lambda: client.attach(ticket))
        assert await world.is_free(world.name())

    @case
    async def test_ticket_that_is_not_used_runs_out_with_the_ttl(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lease = await actor.do(client.lock(world.name(), ttl=world.paced(0.6)).acquire)
        ticket = await actor.do(lease.detach)
        await world.until_free(world.name())
        with pytest.raises(holdfast.NotHeld):
            await actor.do(lambda: client.attach(ticket))

    @case
    async def test_attached_lease_is_renewed(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lease = await actor.do(client.lock(world.name(), ttl=world.lasting).acquire)
        ticket = await actor.do(lease.detach)
        attached = await actor.do(lambda: client.attach(ticket))
        assert attached.ttl == world.lasting
        await world.until_renewed(attached)
        await actor.do(attached.release)

    @case
    async def test_waiters_of_both_clients_wait_until_the_attached_lease_is_released(self, world: World) -> None:
        one, two, actor, waiters = world.connect(), world.connect(), world.actor(), world.actors(2)
        lease = await actor.do(one.lock(world.name()).acquire)
        waiting = [
            waiters[0].do(lambda: one.lock(world.name()).acquire(timeout=world.soon)),
            waiters[1].do(lambda: two.lock(world.name()).acquire(timeout=world.soon)),
        ]
        await world.until_queued(one, world.name())
        ticket = await actor.do(lease.detach)
        attached = await actor.do(lambda: two.attach(ticket))
        assert not any(each.done() for each in waiting)
        assert attached.held
        await actor.do(attached.release)
        tokens = set()
        for first in asyncio.as_completed(waiting):
            granted = await first
            tokens.add(granted.token)
            await actor.do(granted.release)
        assert min(tokens) > attached.token

    @case
    async def test_block_in_which_the_lease_is_detached_ends_quietly(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        ticket = await actor.within(client.lock(world.name()), lambda lease: lease.detach())
        assert not await world.is_free(world.name())
        attached = await actor.do(lambda: client.attach(ticket))
        inner = await actor.do(client.lock(world.name()).acquire)  # re-entered
        assert inner.token == attached.token
        await actor.do(inner.release)
        await actor.do(attached.release)
        assert await world.is_free(world.name())

    @case
    async def test_detached_lock_outlives_the_client_that_detached_it(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        ticket = await actor.do((await actor.do(client.lock(world.name()).acquire)).detach)
        await actor.do(client.close)
        assert not await world.is_free(world.name())
        attached = await actor.do(lambda: world.connect().attach(ticket))
        await actor.do(attached.release)

    @case
    async def test_lease_with_other_handles_cannot_be_detached_and_stays_held(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        outer = await actor.do(client.lock(world.name()).acquire)
        inner = await actor.do(client.lock(world.name()).acquire)
        with pytest.raises(holdfast.UsageError, match="other leases"):
            await actor.do(inner.detach)
        assert inner.held
        await actor.do(outer.release)
        ticket = await actor.do(inner.detach)
        await actor.do((await actor.do(lambda: client.attach(ticket))).release)

    @case
    async def test_released_and_lost_leases_cannot_be_detached(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lease = await actor.do(client.lock(world.name()).acquire)
        await actor.do(lease.release)
        with pytest.raises(holdfast.NotHeld):
            await actor.do(lease.detach)
        lease = world.keep(await actor.do(client.lock(world.name()).acquire))
        await world.do(lambda: client.break_(world.name()))
        await world.until(lambda: lease.lost)
        with pytest.raises(holdfast.LockLost):
            await actor.do(lease.detach)

    @case
    async def test_broken_while_it_was_detached_the_ticket_is_of_no_use(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        ticket = await actor.do((await actor.do(client.lock(world.name()).acquire)).detach)
        assert await world.do(lambda: client.break_(world.name()))
        other = await actor.do(client.lock(world.name()).acquire)
        with pytest.raises(holdfast.NotHeld):
            await actor.do(lambda: client.attach(ticket))
        assert other.held
        await actor.do(other.release)

    @case
    async def test_inspect_shows_nothing_that_attaches(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        ticket = await actor.do((await actor.do(client.lock(world.name()).acquire)).detach)
        (holder,) = (await world.inspect(client, world.name())).holders
        digest = holder.owner.partition(":")[0]
        assert len(digest) == 64
        assert digest not in ticket
        for guess in (holder.owner, digest):
            with pytest.raises(holdfast.UsageError) as caught:
                await actor.do(partial(client.attach, guess))
            assert guess not in str(caught.value)
        await actor.do((await actor.do(lambda: client.attach(ticket))).release)

    @case
    async def test_ticket_of_another_namespace_is_refused_and_stays_valid(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        ticket = await actor.do((await actor.do(client.lock(world.name()).acquire)).detach)
        with pytest.raises(holdfast.UsageError, match="namespace"):
            await actor.do(lambda: world.connect(namespace="other").attach(ticket))
        await actor.do((await actor.do(lambda: client.attach(ticket))).release)


class DetachingRefusedCases:
    @case
    async def test_without_the_guarantee_detaching_is_refused_and_the_lease_stays_held(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lease: Any = await actor.do(client.lock(world.name()).acquire)
        if not client.guarantees.detach:
            with pytest.raises(holdfast.UsageError, match="does not give 'detach'"):
                await actor.do(lease.detach)
        assert lease.held
        await actor.do(lease.release)
