"""Breaking a lock by force, and what tokens do then and always: grow."""

from __future__ import annotations

import functools
import logging

import pytest

import holdfast
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case


class BreakingCases:
    @case
    async def test_break_frees_the_lock_and_tells_the_holder(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        client, operator = world.connect(ttl=world.lasting), world.connect()
        lease = await world.do(client.lock(world.name()).acquire)
        with caplog.at_level(logging.WARNING, "holdfast"):
            assert await world.do(lambda: operator.break_(world.name())) is True
        assert any(world.name() in record.getMessage() for record in caplog.records), "it must be logged"
        assert await world.do(lambda: lease.lost.wait(world.soon)) is True
        assert lease.lost_reason == "broken"
        assert not lease.held
        with pytest.raises(holdfast.LockLost, match="broken"):
            await world.do(lease.release)
        assert await world.is_free(world.name())

    @case
    async def test_breaking_a_free_lock_says_so(self, world: World) -> None:
        client = world.connect()
        assert await world.do(lambda: client.break_(world.name())) is False

    @case
    async def test_a_waiter_gets_a_broken_lock_and_the_old_holder_cannot_disturb_it(self, world: World) -> None:
        client, other, (one, two) = world.connect(ttl=world.lasting), world.connect(), world.actors(2)
        lease = await one.do(client.lock(world.name()).acquire)
        waiting = two.do(other.lock(world.name()).acquire)
        await world.until_waiting(client, world.name())
        await world.do(lambda: other.break_(world.name()))
        heir = await waiting
        assert heir.token > lease.token
        assert await one.do(lambda: lease.lost.wait(world.soon)) is True
        assert lease.lost_reason in ("broken", "stolen")  # by the time it looks, there is another owner
        with pytest.raises(holdfast.LockLost):
            await one.do(lease.release)
        assert heir.held
        assert not await world.is_free(world.name())
        await two.do(heir.release)

    @case
    async def test_a_holder_that_has_not_looked_learns_of_it_when_it_releases(self, world: World) -> None:
        client, operator = world.connect(), world.connect()
        lease = await world.do(client.lock(world.name(), renew=False).acquire)
        await world.do(lambda: operator.break_(world.name()))
        with pytest.raises(holdfast.LockLost) as caught:
            await world.do(lease.release)
        assert caught.value.reason == "broken"
        assert not lease.held

    @case
    async def test_tokens_grow_over_holders_breaking_expiry_and_idleness(self, world: World) -> None:
        tokens, operator = [], world.connect()
        for end in ("released", "broken", "expired") * 3:
            expires = end == "expired"
            lock = world.connect().lock(world.name(), ttl=world.paced(0.15) if expires else 30, renew=not expires)
            lease = world.keep(await world.do(functools.partial(lock.acquire, timeout=world.soon)))
            tokens.append(lease.token)
            if end == "released":
                await world.do(lease.release)
            elif end == "broken":
                await world.do(lambda: operator.break_(world.name()))
        assert tokens == sorted(set(tokens))

    @case
    async def test_breaking_bumps_the_token(self, world: World) -> None:
        """A guard that is shown the broken holder's token late must have a chance to know better."""
        client = world.connect()
        lease = world.keep(await world.do(client.lock(world.name()).acquire))
        await world.do(lambda: client.break_(world.name()))
        state = await world.inspect(client, world.name())
        assert state.holders == ()
        assert state.token is None or state.token > lease.token
        next_lease = await world.do(lambda: world.connect().lock(world.name()).acquire(timeout=world.soon))
        assert next_lease.token > lease.token + 1
        await world.do(next_lease.release)
