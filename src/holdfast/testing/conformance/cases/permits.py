"""Semaphores: so many permits and no more, all that are asked for at once, in the order of the requests."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

import holdfast
from holdfast.testing.conformance.processes import helper
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case, needs


class OfferedPermitCases:
    @case
    async def test_engine_without_semaphores_says_so(self, world: World) -> None:
        client = world.connect()
        if client.guarantees.permits:
            assert client.semaphore(world.name(), 2).name == world.name()
            return
        with pytest.raises(holdfast.UsageError, match="has no semaphores"):
            client.semaphore(world.name(), 2)
        with pytest.raises(holdfast.UsageError, match="permits"):
            client.lock(world.name(), require={"permits"})


@needs("permits")
class PermitCases:
    @case
    async def test_no_more_permits_are_granted_than_there_are(self, world: World) -> None:
        semaphores = [world.connect().semaphore(world.name(), 3) for _ in range(2)]
        one, two = world.actors(2)
        leases = [await one.do(semaphores[0].acquire), await one.do(semaphores[0].acquire)]
        leases.append(await two.do(semaphores[1].acquire))
        assert all(lease.held for lease in leases)
        assert len({lease.owner for lease in leases}) == 3, "not re-entrant: each acquire has a permit of its own"
        for semaphore in semaphores:
            assert await two.do(semaphore.try_acquire) is None
        await one.do(leases.pop().release)
        leases.append(await two.do(lambda: semaphores[1].acquire(timeout=world.soon)))
        for lease in leases:
            await world.do(lease.release)

    @case
    async def test_with_blocks_hold_one_permit_each(self, world: World) -> None:
        client, other = world.connect(), world.connect()
        inside, most = 0, 0

        async def work(actor: Any, semaphore: Any) -> None:
            nonlocal inside, most

            def body(lease: Any) -> None:
                nonlocal inside, most
                inside += 1
                most = max(most, inside)
                assert lease.held
                inside -= 1

            for _ in range(3):
                await actor.within(semaphore, body)

        shared = client.semaphore(world.name(), 2, timeout=world.soon)
        own = [shared, shared, other.semaphore(world.name(), 2, timeout=world.soon)]
        await asyncio.gather(*map(work, world.actors(3), own))
        assert 1 <= most <= 2
        assert (await world.inspect(client, world.name())).free == 2

    @case
    async def test_permits_are_granted_all_at_once_or_not_at_all(self, world: World) -> None:
        client, other, (one, two, three) = world.connect(), world.connect(), world.actors(3)
        both = await one.do(lambda: client.semaphore(world.name(), 2).acquire(2))
        waiting = [
            actor.do(partial(each.semaphore(world.name(), 2).acquire, 2))
            for actor, each in ((two, client), (three, other))
        ]
        await world.until_waiting(client, world.name(), 2)
        await one.do(both.release)
        done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=world.soon)
        assert (len(done), len(pending)) == (1, 1)
        state = await world.inspect(client, world.name())
        assert (state.free, [holder.count for holder in state.holders]) == (0, [2])
        await world.do((await done.pop()).release)
        await world.do((await pending.pop()).release)

    @case
    async def test_request_for_many_permits_is_not_starved_by_requests_for_few(self, world: World) -> None:
        client, other, (one, two, three) = world.connect(), world.connect(), world.actors(3)
        few = client.semaphore(world.name(), 2)
        first = await one.do(few.acquire)
        many = two.do(lambda: other.semaphore(world.name(), 2).acquire(2))
        await world.until_waiting(client, world.name())
        assert await three.do(few.try_acquire) is None, "one permit is free, but an earlier request waits for it"
        late = three.do(few.acquire)
        await world.until_waiting(client, world.name(), 2)
        await one.do(first.release)
        lease = await many
        assert not late.done()
        await two.do(lease.release)
        await three.do((await late).release)

    @case
    async def test_two_permits_returned_together_wake_two_waiters(self, world: World) -> None:
        client, other, (one, two, three) = world.connect(), world.connect(), world.actors(3)
        both = await one.do(lambda: client.semaphore(world.name(), 2).acquire(2))
        waiting = [actor.do(each.semaphore(world.name(), 2).acquire) for actor, each in ((two, client), (three, other))]
        await world.until_waiting(client, world.name(), 2)
        await one.do(both.release)
        for lease in await asyncio.gather(*waiting):
            assert lease.held
            await world.do(lease.release)

    @case
    async def test_resize_wakes_all_waiters_for_which_there_is_room_now(self, world: World) -> None:
        client, other, (one, two, three) = world.connect(), world.connect(), world.actors(3)
        semaphore = client.semaphore(world.name(), 1)
        held = await one.do(semaphore.acquire)
        waiting = [actor.do(other.semaphore(world.name(), 1).acquire) for actor in (two, three)]
        await world.until_waiting(client, world.name(), 2)
        await one.do(lambda: semaphore.resize(3))
        leases = await asyncio.gather(*waiting)
        state = await world.inspect(client, world.name())
        assert (state.size, state.free, held.held) == (3, 0, True)
        for lease in (held, *leases):
            await world.do(lease.release)

    @case
    async def test_waiter_for_more_than_is_left_after_a_resize_gets_an_error(self, world: World) -> None:
        client, other, (one, two, three) = world.connect(), world.connect(), world.actors(3)
        semaphore = client.semaphore(world.name(), 3)
        held = await one.do(semaphore.acquire)
        impossible = two.do(lambda: other.semaphore(world.name(), 3).acquire(3))
        await world.until_waiting(client, world.name())
        behind = three.do(other.semaphore(world.name(), 3).acquire)
        await world.until_waiting(client, world.name(), 2)
        await one.do(lambda: semaphore.resize(2))
        with pytest.raises(holdfast.UsageError, match="3 permits"):
            await impossible
        lease = await behind
        for each in (held, lease):
            await world.do(each.release)

    @case
    async def test_resize_below_what_is_held_grants_nothing_until_enough_is_returned(self, world: World) -> None:
        client, (one, two) = world.connect(), world.actors(2)
        semaphore = client.semaphore(world.name(), 3)
        leases = [await one.do(semaphore.acquire) for _ in range(3)]
        await one.do(lambda: semaphore.resize(1))
        state = await world.inspect(client, world.name())
        assert (state.size, state.free, len(state.holders)) == (1, 0, 3)
        for lease in leases:
            assert lease.held
            assert await two.do(semaphore.try_acquire) is None
            await one.do(lease.release)
        await two.do((await two.do(lambda: semaphore.acquire(timeout=world.soon))).release)

    @case
    async def test_number_counts_when_the_semaphore_is_created_and_resize_changes_it(self, world: World) -> None:
        client, one = world.connect(), world.actor()
        await one.do((await one.do(client.semaphore(world.name(), 2).acquire)).release)
        later = world.connect().semaphore(world.name(), 5)
        with pytest.raises(holdfast.UsageError, match="3 permits"):
            await one.do(lambda: later.acquire(3))
        await one.do(lambda: later.resize(4))
        lease = await one.do(lambda: client.semaphore(world.name(), 2).acquire(4, timeout=world.soon))
        await one.do(lease.release)
        unused = client.semaphore(world.name("unused"), 1)
        await one.do(lambda: unused.resize(3))
        await one.do((await one.do(lambda: unused.acquire(3, timeout=world.soon))).release)

    @case
    async def test_another_size_than_expected_is_logged_once(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        client, one = world.connect(), world.actor()
        await one.do((await one.do(client.semaphore(world.name(), 2).acquire)).release)
        for _ in range(3):
            await one.do((await one.do(client.semaphore(world.name(), 7).acquire)).release)
        found = [record.getMessage() for record in caplog.records if record.name == "holdfast.settings"]
        assert len(found) == 1
        assert f"{world.name()!r} has 2 permits, not 7" in found[0]

    @case
    async def test_requests_that_can_never_be_granted_are_refused(self, world: World) -> None:
        client, one = world.connect(), world.actor()
        semaphore = client.semaphore(world.name(), 2)
        for call in (semaphore.acquire, semaphore.try_acquire):
            for number in (3, 0, -1):
                with pytest.raises(holdfast.UsageError, match=f"semaphore '{world.name()}'"):
                    await one.do(partial(call, number))
            with pytest.raises(TypeError):
                await one.do(partial(call, True))
        with pytest.raises(holdfast.UsageError):
            await one.do(lambda: semaphore.resize(0))
        with pytest.raises(holdfast.UsageError):
            client.semaphore(world.name(), 0)
        state = await world.inspect(client, world.name())
        assert (state.holders, state.waiters) == ((), 0)

    @case
    async def test_permits_of_a_lost_lease_return_at_its_ttl(self, world: World) -> None:
        client, other, (one, two) = world.connect(), world.connect(), world.actors(2)
        short = client.semaphore(world.name(), 3, ttl=world.paced(0.3), renew=False)
        losing = await one.do(lambda: short.acquire(2))
        staying = await two.do(other.semaphore(world.name(), 3, ttl=world.lasting).acquire)
        again = await two.do(lambda: other.semaphore(world.name(), 3).acquire(2, timeout=world.soon))
        assert losing.lost_reason == "expired"
        with pytest.raises(holdfast.LockLost):
            await one.do(losing.release)
        await two.do(staying.renew)
        assert (staying.held, again.held) == (True, True)
        for lease in (staying, again):
            await two.do(lease.release)
        assert (await world.inspect(client, world.name())).free == 3

    @case
    async def test_leases_of_permits_are_renewed(self, world: World) -> None:
        semaphore, one = world.connect().semaphore(world.name(), 3, ttl=world.lasting), world.actor()
        leases = [await one.do(semaphore.acquire), await one.do(lambda: semaphore.acquire(2))]
        for lease in leases:
            await world.until_renewed(lease)
        for lease in leases:
            await one.do(lease.release)

    @case
    async def test_request_for_permits_that_times_out_leaves_no_waiter(self, world: World) -> None:
        client, other, (one, two) = world.connect(), world.connect(), world.actors(2)
        semaphore = client.semaphore(world.name(), 2)
        held = await one.do(semaphore.acquire)
        assert await two.do(lambda: other.semaphore(world.name(), 2).try_acquire(2, timeout=world.paced(0.5))) is None
        await world.until_waiters_are_gone(client, world.name())
        lease = await two.do(lambda: other.semaphore(world.name(), 2).acquire(timeout=world.soon))
        for each in (held, lease):
            await world.do(each.release)

    @case
    async def test_cancelled_request_for_permits_leaves_no_waiter(self, async_world: World) -> None:
        world, client, other = async_world, async_world.connect(), async_world.connect()
        held = await client.semaphore(world.name(), 2).acquire()
        waiting = asyncio.create_task(other.semaphore(world.name(), 2).acquire(2))
        await world.until_waiting(client, world.name())
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await world.until_waiters_are_gone(client, world.name())
        lease = await other.semaphore(world.name(), 2).acquire(timeout=world.soon)
        await lease.release()
        await held.release()
        assert (await client.inspect(world.name())).free == 2

    @case
    async def test_inspect_shows_size_free_permits_and_holders(self, world: World) -> None:
        client, other, (one, two) = world.connect(), world.connect(), world.actors(2)
        leases = [
            await one.do(lambda: client.semaphore(world.name(), 5).acquire(3)),
            await two.do(other.semaphore(world.name(), 5).acquire),
        ]
        waiting = two.do(lambda: other.semaphore(world.name(), 5).acquire(2))
        await world.until_waiting(client, world.name())
        state = await world.inspect(client, world.name())
        assert (state.kind, state.size, state.free, state.waiters) == ("semaphore", 5, 1, 1)
        found = {holder.owner: (holder.mode, holder.count, holder.token) for holder in state.holders}
        assert found == {
            lease.owner: ("permits", number, lease.token) for lease, number in zip(leases, (3, 1), strict=True)
        }
        assert [waiter.mode for waiter in state.queue] == ["permits"]
        assert [listed.name for listed in await world.list_locks(client)] == [world.name()]
        await one.do(leases[0].release)
        for lease in (leases[1], await waiting):
            await world.do(lease.release)
        state = await world.inspect(client, world.name())
        assert (state.kind, state.size, state.free, state.holders) == ("semaphore", 5, 5, ())
        assert await world.list_locks(client) == []

    @case
    async def test_break_takes_the_permits_of_all_holders_or_of_one(self, world: World) -> None:
        client, other, (one, two) = world.connect(), world.connect(), world.actors(2)
        first = await one.do(lambda: client.semaphore(world.name(), 3).acquire(2))
        second = await two.do(other.semaphore(world.name(), 3, ttl=world.lasting).acquire)
        assert await world.do(lambda: client.break_(world.name(), token=first.token))
        assert first.lost_reason == "broken"
        await two.do(second.renew)
        assert second.held, "another holder was broken"
        assert not await world.do(lambda: client.break_(world.name(), token=first.token))
        assert await world.do(lambda: other.break_(world.name()))
        assert second.lost_reason == "broken"
        state = await world.inspect(client, world.name())
        assert (state.size, state.free) == (3, 3)
        lease = await one.do(lambda: client.semaphore(world.name(), 3).acquire(3, timeout=world.soon))
        await one.do(lease.release)

    @case
    async def test_name_of_a_semaphore_is_of_no_other_kind(self, world: World) -> None:
        client, other, (one, two) = world.connect(), world.connect(), world.actors(2)
        permit = await one.do(client.semaphore(world.name(), 2).acquire)
        with pytest.raises(holdfast.EngineRefused, match=r"semaphore.*lock"):
            await two.do(other.lock(world.name()).acquire)
        held = await one.do(client.lock(world.name("plain")).acquire)
        with pytest.raises(holdfast.EngineRefused, match=r"lock.*semaphore"):
            await two.do(other.semaphore(world.name("plain"), 2).acquire)
        if client.guarantees.shared:
            with pytest.raises(holdfast.EngineRefused, match=r"semaphore.*rwlock"):
                await two.do(other.rwlock(world.name()).read.acquire)
            reading = await one.do(client.rwlock(world.name("rw")).read.acquire)
            with pytest.raises(holdfast.EngineRefused, match=r"rwlock.*semaphore"):
                await two.do(other.semaphore(world.name("rw"), 2).acquire)
            await one.do(reading.release)
        for lease in (permit, held):
            await one.do(lease.release)


@needs("permits", "cross_process")
class KilledPermitCases:
    @case
    async def test_permits_of_a_killed_process_return_within_its_ttl(self, sync_world: World) -> None:
        world = sync_world
        client = world.connect()
        async with helper(world) as child:
            await child.ask("acquire", name=world.name(), mode="permits", permits=1, ttl=world.paced(1.0))
            assert await world.do(client.semaphore(world.name(), 1).try_acquire) is None
            await child.kill()
        lease = await world.do(lambda: client.semaphore(world.name(), 1).acquire(timeout=world.soon))
        await world.do(lease.release)
        assert (await world.inspect(client, world.name())).free == 1

    @case
    async def test_killed_waiter_for_permits_delays_others_for_two_seconds_at_most(self, sync_world: World) -> None:
        world = sync_world
        client, (one, two) = world.connect(), world.actors(2)
        held = await one.do(client.semaphore(world.name(), 2).acquire)
        async with helper(world, ttl=world.paced(1.0)) as child:
            await child.ask("reach")
            blocking = await one.do(client.semaphore(world.name(), 2).acquire)
            waiting = asyncio.create_task(child.ask("acquire", name=world.name(), mode="permits", permits=2))
            await world.until_waiting(client, world.name())
            await child.kill()
            await asyncio.gather(waiting, return_exceptions=True)
        await one.do(blocking.release)
        lease = await two.do(lambda: client.semaphore(world.name(), 2).acquire(timeout=2.0 + world.soon))
        for each in (held, lease):
            await world.do(each.release)
