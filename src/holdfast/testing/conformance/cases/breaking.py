"""Breaking a lock with ``break_``; tokens always grow."""

from __future__ import annotations

import functools
import logging

import pytest

import holdfast
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case


class BreakingCases:
    @case
    async def test_break_frees_the_lock_and_notifies_the_holder(
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
    async def test_breaking_a_free_lock_returns_false(self, world: World) -> None:
        client = world.connect()
        assert await world.do(lambda: client.break_(world.name())) is False

    @case
    async def test_waiter_gets_a_broken_lock_and_the_old_holder_cannot_release_it(self, world: World) -> None:
        client, other, (one, two) = world.connect(ttl=world.lasting), world.connect(), world.actors(2)
        lease = await one.do(client.lock(world.name()).acquire)
        waiting = two.do(other.lock(world.name()).acquire)
        await world.until_waiting(client, world.name())
        await world.do(lambda: other.break_(world.name()))
        successor = await waiting
        assert successor.token > lease.token
        assert await one.do(lambda: lease.lost.wait(world.soon)) is True
        assert lease.lost_reason in ("broken", "stolen")  # it may find the next owner already
        with pytest.raises(holdfast.LockLost):
            await one.do(lease.release)
        assert successor.held
        assert not await world.is_free(world.name())
        await two.do(successor.release)

    @case
    async def test_release_of_a_broken_lock_without_renewal_raises_lock_lost(self, world: World) -> None:
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
    async def test_break_skips_a_token(self, world: World) -> None:
        """A fence must be able to refuse the broken holder's token."""
        client = world.connect()
        lease = world.keep(await world.do(client.lock(world.name()).acquire))
        await world.do(lambda: client.break_(world.name()))
        state = await world.inspect(client, world.name())
        assert state.holders == ()
        assert state.token is None or state.token > lease.token
        next_lease = await world.do(lambda: world.connect().lock(world.name()).acquire(timeout=world.soon))
        assert next_lease.token > lease.token + 1
        await world.do(next_lease.release)

    @case
    async def test_break_with_the_holders_token_breaks_it(self, world: World) -> None:
        client, operator, actors = world.connect(ttl=world.lasting), world.connect(), world.actors(2)
        lease = await actors[0].do(client.lock(world.name()).acquire)
        waiting = actors[1].do(world.connect().lock(world.name()).acquire)
        await world.until_waiting(operator, world.name())
        (holder,) = (await world.inspect(operator, world.name())).holders
        assert holder.token == lease.token
        assert await world.do(lambda: operator.break_(world.name(), token=holder.token)) is True
        following = await waiting
        assert following.token > lease.token + 1
        assert await actors[0].do(lambda: lease.lost.wait(world.soon)) is True
        assert lease.lost_reason in ("broken", "stolen")  # it may find the next owner already
        with pytest.raises(holdfast.LockLost):
            await actors[0].do(lease.release)
        await actors[1].do(following.release)

    @case
    async def test_break_by_the_holders_client_is_reported_immediately(self, world: World) -> None:
        client = world.connect()
        lease = await world.do(client.lock(world.name()).acquire)
        assert await world.do(lambda: client.break_(world.name(), token=lease.token)) is True
        assert (lease.held, lease.lost_reason) == (False, "broken")
        with pytest.raises(holdfast.LockLost, match="broken"):
            await world.do(lease.release)
        assert await world.is_free(world.name())

    @case
    async def test_break_with_another_token_changes_nothing(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        client, operator = world.connect(), world.connect()
        earlier = await world.do(client.lock(world.name()).acquire)
        await world.do(earlier.release)
        lease = await world.do(client.lock(world.name()).acquire)
        before = await world.inspect(operator, world.name())
        with caplog.at_level(logging.WARNING, "holdfast"):
            for token in (earlier.token, lease.token - 1, lease.token + 1, 0, 2**64):
                assert await world.do(functools.partial(operator.break_, world.name(), token=token)) is False
                assert await world.do(functools.partial(client.break_, world.name(), token=token)) is False
        assert not [record for record in caplog.records if "broken" in record.getMessage()]
        assert lease.held
        after = await world.inspect(operator, world.name())
        assert (after.holders[0].owner, after.token) == (before.holders[0].owner, before.token)
        await world.do(lease.renew)
        await world.do(lease.release)

    @case
    async def test_break_of_a_free_lock_by_token_does_nothing(self, world: World) -> None:
        client = world.connect()
        assert await world.do(lambda: client.break_(world.name(), token=1)) is False
        lease = await world.do(client.lock(world.name()).acquire)
        await world.do(lease.release)
        assert await world.do(lambda: client.break_(world.name(), token=lease.token)) is False
        assert await world.is_free(world.name())

    @case
    async def test_repeated_break_by_token_does_not_affect_the_next_holder(self, world: World) -> None:
        client, operator = world.connect(), world.connect()
        broken = world.keep(await world.do(client.lock(world.name(), renew=False).acquire))
        assert await world.do(lambda: operator.break_(world.name(), token=broken.token)) is True
        following = await world.do(lambda: world.connect().lock(world.name()).acquire(timeout=world.soon))
        assert await world.do(lambda: operator.break_(world.name(), token=broken.token)) is False
        assert following.held
        await world.do(following.renew)
        await world.do(following.release)

    @case
    async def test_grant_with_reserved_tokens_is_broken_by_the_token_shown(self, world: World) -> None:
        """With local waiters behind it, a claim reserves tokens for them: the engine stores the last of the block."""
        client, operator, (one, two, three) = world.connect(), world.connect(), world.actors(3)
        lock = client.lock(world.name(), ttl=world.paced(3))  # where no push tells the holder, its next renewal does
        first = await one.do(lock.acquire)
        waiting = []
        for number, actor in enumerate((two, three), 1):
            waiting.append(actor.do(lock.acquire))
            await world.until_queued(client, world.name(), number)
        await one.do(first.release)
        second = await waiting[0]
        (holder,) = (await world.inspect(operator, world.name())).holders
        assert (holder.owner, holder.token) == (second.owner, second.token)
        assert await world.do(lambda: operator.break_(world.name(), token=holder.token)) is True
        third = await waiting[1]
        assert third.token > second.token
        assert not await world.do(lambda: client.break_(world.name(), token=second.token))
        assert third.held
        with pytest.raises(holdfast.LockLost):
            await two.do(second.release)
        await three.do(third.release)

    @case
    async def test_break_with_a_token_of_an_earlier_local_holder_changes_nothing(self, world: World) -> None:
        client, (one, two, three) = world.connect(), world.actors(3)
        first = await one.do(client.lock(world.name()).acquire)
        tokens: list[int] = []
        passing = two.within(client.lock(world.name()), lambda lease: tokens.append(lease.token))
        await world.until_queued(client, world.name())
        waiting = three.do(client.lock(world.name()).acquire)
        await world.until_queued(client, world.name(), 2)
        await one.do(first.release)
        await passing
        third = await waiting
        (holder,) = (await world.inspect(client, world.name())).holders
        assert (holder.owner, holder.token) == (third.owner, third.token)
        assert await world.do(lambda: client.break_(world.name(), token=tokens[0])) is False
        assert third.held
        assert await world.do(lambda: client.break_(world.name(), token=third.token)) is True
        with pytest.raises(holdfast.LockLost, match="broken"):
            await three.do(third.release)

    @case
    async def test_invalid_token_is_refused(self, world: World) -> None:
        client = world.connect()
        lease = await world.do(client.lock(world.name()).acquire)
        for wrong, error in ((True, TypeError), ("5", TypeError), (5.0, TypeError), (-1, ValueError)):
            with pytest.raises(error, match="token"):
                await world.do(functools.partial(client.break_, world.name(), token=wrong))
        assert lease.held
        await world.do(lease.release)
