"""Renewal: leases that are renewed while held, leases that are not, and how each ends."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast.testing.conformance.world import World, by_session, ends
from holdfast.testing.conformance.writing import case


class RenewingCases:
    @case
    async def test_a_held_lock_is_renewed(self, world: World) -> None:
        client, actor = world.connect(ttl=world.lasting), world.actor()
        lease = await actor.do(client.lock(world.name()).acquire)
        assert await actor.do(lambda: lease.lost.wait(1.05 * lease.ttl)) is False
        assert lease.held
        assert not await world.is_free(world.name())
        await actor.do(lease.release)

    @case
    async def test_many_locks_of_different_ttl_are_renewed_together(self, world: World) -> None:
        client = world.connect()
        ttls = [world.lasting * longer for longer in (1, 1.05, 1.1)] * 10
        leases = [await world.do(client.lock(world.name(f"{n}"), ttl=ttl).acquire) for n, ttl in enumerate(ttls)]
        await asyncio.gather(*(world.until_renewed(lease) for lease in leases))
        for lease in leases:
            await world.do(lease.release)

    @case
    async def test_lease_without_renewal_expires(self, world: World) -> None:
        client, actor, ttl = world.connect(), world.actor(), world.paced(1.0)
        began = clock.now()
        lease = await actor.do(client.lock(world.name(), ttl=ttl, renew=False).acquire)
        end = ends(lease)
        assert lease.held
        assert by_session(lease) or lease.remaining + clock.now() - began > 0.75 * ttl
        assert await actor.do(lambda: lease.lost.wait(world.soon)) is True
        assert end - 0.001 < clock.now() < began + ttl + world.paced(1.0)
        assert not lease.held
        assert lease.lost
        assert lease.lost_reason == "expired"
        assert lease.remaining == 0.0
        await world.until_free(world.name())
        with pytest.raises(holdfast.LockLost) as caught:
            await actor.do(lease.release)
        assert (caught.value.reason, caught.value.name, caught.value.token) == ("expired", world.name(), lease.token)
        await actor.do(lease.release)  # the loss is raised once; from then on the lease is released

    @case
    async def test_lease_ends_before_the_engine_grants_the_lock_again(self, world: World) -> None:
        client, other = world.connect(), world.connect()
        lease = await world.do(client.lock(world.name(), ttl=world.paced(0.2), renew=False).acquire)
        next_lease = await world.do(lambda: other.lock(world.name()).acquire(timeout=world.soon))
        assert not lease.held
        assert lease.lost_reason == "expired"
        assert next_lease.token > lease.token
        with pytest.raises(holdfast.LockLost):
            await world.do(lease.release)
        assert next_lease.held
        assert not await world.is_free(world.name()), "releasing a lost lease must not release the next holder's"
        await world.do(next_lease.release)

    @case
    async def test_caller_acquires_again_after_expiry(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lock = client.lock(world.name(), ttl=world.paced(0.15), renew=False)
        lost = await actor.do(lock.acquire)
        await actor.do(lambda: lost.lost.wait(world.soon))
        lease = await actor.do(lambda: lock.acquire(timeout=world.soon))
        assert lease.held
        assert not lost.held
        assert lease.token > lost.token
        await actor.do(lease.release)

    @case
    async def test_max_hold_ends_a_lease_that_is_renewed(self, world: World) -> None:
        client, actor, limit = world.connect(), world.actor(), world.paced(1.0)
        began = clock.now()
        lease = await actor.do(client.lock(world.name(), ttl=world.lasting, max_hold=limit).acquire)
        assert await actor.do(lambda: lease.lost.wait(world.soon)) is True
        assert 0.9 * limit < clock.now() - began < limit + world.paced(1.0)
        assert lease.lost_reason == "max_hold"
        await world.until_free(world.name())
        with pytest.raises(holdfast.LockLost, match="max_hold"):
            await actor.do(lease.release)

    @case
    async def test_renew_extends_and_sets_the_ttl_from_then_on(self, world: World) -> None:
        client, actor, ttl = world.connect(), world.actor(), world.paced(1.0)
        lease = await actor.do(client.lock(world.name(), ttl=ttl).acquire)
        if by_session(lease):
            with pytest.raises(holdfast.UsageError, match="session"):
                await actor.do(lambda: lease.renew(ttl=20))
            assert lease.ttl == ttl
            await actor.do(lease.release)
            return
        await actor.do(lambda: lease.renew(ttl=20))
        assert 19 < lease.remaining <= 20
        assert lease.ttl == 20
        remaining = (await world.inspect(client, world.name())).remaining
        assert remaining is not None
        assert 19 < remaining <= 20.1
        assert await actor.do(lambda: lease.lost.wait(1.1 * ttl)) is False
        await actor.do(lease.release)

    @case
    async def test_renew_never_shortens(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lease = await actor.do(client.lock(world.name(), ttl=20).acquire)
        before = lease.remaining
        assert by_session(lease) or before > 19
        ttl = world.paced(0.3)
        await actor.do(lambda: lease.renew(ttl=ttl))
        assert lease.remaining > before - 1
        remaining = (await world.inspect(client, world.name())).remaining
        assert remaining is not None
        assert remaining > 15
        assert await actor.do(lambda: lease.lost.wait(1.1 * ttl)) is False
        await actor.do(lease.release)

    @case
    async def test_lease_without_automatic_renewal_can_be_renewed_manually(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lease = await actor.do(client.lock(world.name(), ttl=world.lasting, renew=False).acquire)
        for _ in range(3):
            end = ends(lease)
            assert await actor.do(lambda: lease.lost.wait(world.paced(0.15))) is False
            await actor.do(lease.renew)
            assert ends(lease) > end
        assert lease.held
        assert await actor.do(lambda: lease.lost.wait(world.soon)) is True
        assert lease.lost_reason == "expired"

    @case
    async def test_lease_that_has_ended_is_not_renewed(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        released = await actor.do(client.lock(world.name("a")).acquire)
        await actor.do(released.release)
        with pytest.raises(holdfast.NotHeld):
            await actor.do(released.renew)
        lost = await actor.do(client.lock(world.name("b"), ttl=world.paced(0.15), renew=False).acquire)
        await actor.do(lambda: lost.lost.wait(world.soon))
        with pytest.raises(holdfast.LockLost, match="expired"):
            await actor.do(lost.renew)
        await world.until_free(world.name("b"))

    @pytest.mark.parametrize("bad", [0, 0.09, -1, math.nan, math.inf, True, 7 * 86400 + 1])
    @case
    async def test_ttl_is_from_a_tenth_of_a_second_to_seven_days(self, world: World, bad: Any) -> None:
        client, actor = world.connect(), world.actor()
        with pytest.raises(ValueError, match="ttl"):
            client.lock(world.name(), ttl=bad)
        with pytest.raises(ValueError, match="ttl"):
            world.connect(ttl=bad)
        lease = await actor.do(client.lock(world.name()).acquire)
        with pytest.raises(ValueError, match="ttl"):
            await actor.do(lambda: lease.renew(ttl=bad))
        assert lease.held
        await actor.do(lease.release)

    @pytest.mark.parametrize("ttl", [0.1, 7 * 86400])
    @case
    async def test_the_shortest_and_the_longest_ttl_work(self, world: World, ttl: float) -> None:
        client, actor = world.connect(), world.actor()
        began = clock.now()
        lease = await actor.do(client.lock(world.name(), ttl=ttl).acquire)
        given = min(ttl, 30.0) if by_session(lease) else ttl
        assert lease.ttl == given
        remaining = lease.remaining
        assert remaining <= given
        assert remaining + clock.now() - began > given * (0.1 if by_session(lease) else 0.5)
        # On a busy machine the short lease may expire first, or before the release is answered.
        with contextlib.suppress(holdfast.LockLost, holdfast.OutcomeUnknown):
            await actor.do(lease.release)
        await world.until_free(world.name())
