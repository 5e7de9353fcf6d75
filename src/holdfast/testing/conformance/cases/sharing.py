"""Read-write locks: readers together, writers alone, in the order of their requests."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast.testing.conformance.processes import helper
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case, needs


class OfferedSharingCases:
    @case
    async def test_engine_without_read_write_locks_says_so(self, world: World) -> None:
        client = world.connect()
        if client.guarantees.shared:
            assert client.rwlock(world.name()).name == world.name()
            return
        with pytest.raises(holdfast.UsageError, match="has no read-write locks"):
            client.rwlock(world.name())
        with pytest.raises(holdfast.UsageError, match="shared"):
            client.lock(world.name(), require={"shared"})


@needs("shared")
class SharingCases:
    @case
    async def test_readers_hold_together_and_exclude_a_writer(self, world: World) -> None:
        one, two = world.connect().rwlock(world.name()), world.connect().rwlock(world.name())
        first, second, third = world.actors(3)
        reading = [
            await first.do(one.read.acquire),
            await second.do(one.read.acquire),
            await third.do(two.read.acquire),
        ]
        assert all(lease.held for lease in reading)
        assert len({lease.owner for lease in reading}) == 3
        writer = world.actor()
        assert await writer.do(two.write.try_acquire) is None
        for lease in reading:
            await world.do(lease.release)
        writing = await writer.do(lambda: two.write.acquire(timeout=world.soon))
        await world.do(writing.release)

    @case
    async def test_writer_excludes_readers_and_writers(self, world: World) -> None:
        one, two, (first, second) = world.connect().rwlock(world.name()), world.connect(), world.actors(2)
        other = two.rwlock(world.name())
        writing = await first.do(one.write.acquire)
        assert await second.do(other.read.try_acquire) is None
        assert await second.do(other.write.try_acquire) is None
        assert await second.do(one.read.try_acquire) is None, "another caller of the client that writes"
        await first.do(writing.release)
        reading = await second.do(lambda: other.read.acquire(timeout=world.soon))
        await second.do(reading.release)

    @case
    async def test_a_write_has_a_new_token_and_readers_have_that_of_the_last_write(self, world: World) -> None:
        rwlock, (one, two) = world.connect().rwlock(world.name()), world.actors(2)
        before = await one.do(rwlock.read.acquire)
        await one.do(before.release)
        writing = await one.do(rwlock.write.acquire)
        await one.do(writing.release)
        reading = [await one.do(rwlock.read.acquire), await two.do(rwlock.read.acquire)]
        for lease in reading:
            await world.do(lease.release)
        again = await two.do(lambda: rwlock.write.acquire(timeout=world.soon))
        await two.do(again.release)
        assert writing.token < again.token
        assert before.token <= writing.token
        for lease in reading:
            assert writing.token <= lease.token < again.token

    @case
    async def test_waiting_writer_is_not_overtaken_by_arriving_readers(self, world: World) -> None:
        clients, (first, second, writer) = [world.connect() for _ in range(3)], world.actors(3)
        one, two, three = (client.rwlock(world.name()) for client in clients)
        reading = await first.do(one.read.acquire)
        writing = writer.do(two.write.acquire)
        await world.until_waiting(clients[0], world.name())
        assert await second.do(three.read.try_acquire) is None, "a reader passed the writer that waits"
        late = second.do(three.read.acquire)
        await world.until_waiting(clients[0], world.name(), 2)
        await first.do(reading.release)
        lease = await writing
        assert not late.done()
        await writer.do(lease.release)
        await second.do((await late).release)

    @case
    async def test_requests_are_granted_in_order_and_readers_between_writers_together(self, world: World) -> None:
        clients = [world.connect() for _ in range(2)]
        locks = [client.rwlock(world.name()) for client in clients]
        holder = world.actor()
        first = await holder.do(locks[0].write.acquire)
        granted: list[str] = []
        waiting = []
        for number, mode in enumerate(["read", "read", "write", "read", "write"]):
            actor, lock = world.actor(), getattr(locks[number % 2], mode)
            waiting.append((actor, actor.do(lock.acquire)))
            await world.until_waiting(clients[0], world.name(), number + 1)
        await holder.do(first.release)
        together = await asyncio.gather(*(future for _, future in waiting[:2]))
        assert not any(future.done() for _, future in waiting[2:])
        for lease, (actor, _) in zip(together, waiting, strict=False):
            await actor.do(lease.release)
        for number, (actor, future) in enumerate(waiting[2:], 3):
            lease = await future
            granted.append(lease.name)
            assert not any(later.done() for _, later in waiting[number:]), "two that exclude each other"
            await actor.do(lease.release)
        assert len(granted) == 3

    @case
    async def test_reader_reenters_past_a_waiting_writer(self, world: World) -> None:
        client, other, (one, two) = world.connect(), world.connect(), world.actors(2)
        read = client.rwlock(world.name()).read
        reading = await one.do(read.acquire)
        writing = two.do(other.rwlock(world.name()).write.acquire)
        await world.until_waiting(client, world.name())
        again = await one.do(lambda: client.rwlock(world.name()).read.acquire(timeout=world.soon))
        assert (again.token, again.owner) == (reading.token, reading.owner)
        await one.do(reading.release)
        assert again.held
        assert not writing.done()
        await one.do(again.release)
        await two.do((await writing).release)

    @case
    async def test_writer_may_read_too(self, world: World) -> None:
        client, other, (one, two) = world.connect(), world.connect(), world.actors(2)
        rwlock = client.rwlock(world.name())
        writing = await one.do(rwlock.write.acquire)
        reading = await one.do(lambda: rwlock.read.acquire(timeout=world.soon))
        assert reading.token == writing.token
        again = await one.do(rwlock.write.acquire)
        await one.do(again.release)
        await one.do(reading.release)
        assert writing.held
        assert await two.do(other.rwlock(world.name()).read.try_acquire) is None
        await one.do(writing.release)
        await two.do((await two.do(lambda: other.rwlock(world.name()).write.acquire(timeout=world.soon))).release)

    @case
    async def test_downgrade_lets_no_queued_writer_in(self, world: World) -> None:
        client, other, (one, two, three) = world.connect(), world.connect(), world.actors(3)
        rwlock, theirs = client.rwlock(world.name()), other.rwlock(world.name())
        writing = await one.do(rwlock.write.acquire)
        queued = two.do(theirs.write.acquire)
        await world.until_waiting(client, world.name())
        reading = await one.do(lambda: rwlock.read.acquire(timeout=world.soon))
        await one.do(writing.release)
        state = await world.inspect(client, world.name())
        assert [(holder.owner, holder.mode) for holder in state.holders] == [(reading.owner, "read")]
        assert (state.waiters, queued.done()) == (1, False)
        assert reading.held
        assert reading.token == writing.token
        await one.do(reading.renew)
        assert await three.do(theirs.read.try_acquire) is None, "a reader passed the writer that waits"
        await one.do(reading.release)
        lease = await queued
        assert lease.token > writing.token
        await two.do(lease.release)

    @case
    async def test_downgrade_wakes_readers(self, world: World) -> None:
        client, other, (one, two, three) = world.connect(), world.connect(), world.actors(3)
        rwlock = client.rwlock(world.name(), ttl=world.lasting)
        writing = await one.do(rwlock.write.acquire)
        waiting = [actor.do(other.rwlock(world.name()).read.acquire) for actor in (two, three)]
        await world.until_waiting(client, world.name(), 2)
        reading = await one.do(lambda: rwlock.read.acquire(timeout=world.soon))
        assert not any(future.done() for future in waiting)
        await one.do(writing.release)
        leases = await asyncio.gather(*waiting)
        assert reading.held
        for lease in (reading, *leases):
            await world.do(lease.release)

    @case
    async def test_upgrade_is_refused(self, world: World) -> None:
        rwlock, one = world.connect().rwlock(world.name()), world.actor()
        reading = await one.do(rwlock.read.acquire)
        for call in (rwlock.write.acquire, rwlock.write.try_acquire):
            with pytest.raises(holdfast.UsageError, match="upgrade"):
                await one.do(call)
        assert reading.held
        await one.do(reading.release)
        writing = await one.do(rwlock.write.acquire)
        reading = await one.do(rwlock.read.acquire)
        await one.do(writing.release)
        with pytest.raises(holdfast.UsageError, match="upgrade"):
            await one.do(rwlock.write.try_acquire)
        await one.do(reading.release)
        writing = await one.do(lambda: rwlock.write.acquire(timeout=world.soon))
        await one.do(writing.release)

    @case
    async def test_with_blocks_of_one_lock_object_are_those_of_their_callers(self, world: World) -> None:
        rwlock, actors = world.connect().rwlock(world.name(), timeout=world.soon), world.actors(3)
        inside, value = 0, 0

        async def read(actor: Any) -> None:
            def body(lease: Any) -> None:
                assert lease.held
                assert value % 2 == 0, "a writer is at work"

            for _ in range(4):
                await actor.within(rwlock.read, body)

        async def write(actor: Any) -> None:
            def body(lease: Any) -> None:
                nonlocal inside, value
                inside += 1
                value += 1
                assert inside == 1
                value += 1
                inside -= 1

            for _ in range(4):
                await actor.within(rwlock.write, body)

        await asyncio.gather(read(actors[0]), read(actors[1]), write(actors[2]))
        assert value == 8

    @case
    async def test_writer_that_times_out_leaves_no_waiter(self, world: World) -> None:
        client, other, (one, two, three) = world.connect(), world.connect(), world.actors(3)
        reading = await one.do(client.rwlock(world.name()).read.acquire)
        assert await two.do(lambda: other.rwlock(world.name()).write.try_acquire(timeout=world.paced(0.5))) is None
        await world.until_waiters_are_gone(client, world.name())
        more = await three.do(lambda: other.rwlock(world.name()).read.acquire(timeout=world.soon))
        for lease in (reading, more):
            await world.do(lease.release)

    @case
    async def test_cancelled_writer_leaves_no_waiter(self, async_world: World) -> None:
        world, client, other = async_world, async_world.connect(), async_world.connect()
        reading = await client.rwlock(world.name()).read.acquire()
        writing = asyncio.create_task(other.rwlock(world.name()).write.acquire())
        await world.until_waiting(client, world.name())
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await world.until_waiters_are_gone(client, world.name())
        lease = await asyncio.create_task(other.rwlock(world.name()).read.acquire(timeout=world.soon))
        assert reading.held
        await lease.release()
        await reading.release()

    @case
    async def test_leases_of_readers_and_of_a_writer_are_renewed(self, world: World) -> None:
        rwlock, (one, two) = world.connect().rwlock(world.name(), ttl=world.lasting), world.actors(2)
        reading = [await one.do(rwlock.read.acquire), await two.do(rwlock.read.acquire)]
        for lease in reading:
            await world.until_renewed(lease)
            await world.do(lease.release)
        writing = await one.do(rwlock.write.acquire)
        nested = await one.do(rwlock.read.acquire)
        for lease in (writing, nested):
            await world.until_renewed(lease)
        for lease in (writing, nested):
            await one.do(lease.release)

    @case
    async def test_loss_of_one_reader_does_not_touch_others(self, world: World) -> None:
        client, other, (one, two) = world.connect(), world.connect(), world.actors(2)
        staying = await one.do(client.rwlock(world.name(), ttl=world.lasting).read.acquire)
        losing = await two.do(other.rwlock(world.name(), ttl=world.paced(0.3), renew=False).read.acquire)
        await world.until(losing.lost.is_set)
        with pytest.raises(holdfast.LockLost):
            await two.do(losing.release)
        await one.do(staying.renew)
        assert staying.held

        async def only_one_left() -> bool:
            holders = (await world.inspect(client, world.name())).holders
            return [holder.owner for holder in holders] == [staying.owner]

        await world.until(only_one_left)
        await one.do(staying.release)
        writing = await two.do(lambda: other.rwlock(world.name()).write.acquire(timeout=world.soon))
        await two.do(writing.release)

    @case
    async def test_write_that_ends_by_max_hold_does_not_live_on_with_a_nested_read(self, world: World) -> None:
        client, other, (one, two) = world.connect(), world.connect(), world.actors(2)
        ttl = world.lasting
        writing = await one.do(client.rwlock(world.name(), ttl=ttl, max_hold=world.paced(0.2)).write.acquire)
        reading = await one.do(client.rwlock(world.name(), ttl=ttl).read.acquire)
        waiting = two.do(other.rwlock(world.name()).read.acquire)
        await world.until(writing.lost.is_set)
        assert writing.lost_reason == "max_hold"
        lease = await waiting
        await one.do(reading.renew)
        assert reading.held
        modes = [holder.mode for holder in (await world.inspect(client, world.name())).holders]
        assert modes == ["read", "read"]
        with pytest.raises(holdfast.LockLost):
            await one.do(writing.release)
        for each in (reading, lease):
            await world.do(each.release)

    @case
    async def test_inspect_shows_kind_modes_and_queue(self, world: World) -> None:
        client, other, (one, two, three) = world.connect(), world.connect(), world.actors(3)
        rwlock = client.rwlock(world.name())
        reading = [await one.do(rwlock.read.acquire), await two.do(other.rwlock(world.name()).read.acquire)]
        waiting = three.do(other.rwlock(world.name()).write.acquire)
        await world.until_waiting(client, world.name())
        state = await world.inspect(client, world.name())
        assert (state.kind, state.size, state.free, state.waiters) == ("rwlock", None, None, 1)
        assert {holder.owner: holder.mode for holder in state.holders} == {lease.owner: "read" for lease in reading}
        assert {holder.count for holder in state.holders} == {1}
        assert {holder.token for holder in state.holders} == {lease.token for lease in reading}
        assert [waiter.mode for waiter in state.queue] == ["write"]
        assert [listed.name for listed in await world.list_locks(client)] == [world.name()]
        for lease in reading:
            await world.do(lease.release)
        writing = await waiting
        state = await world.inspect(client, world.name())
        assert [(holder.owner, holder.mode) for holder in state.holders] == [(writing.owner, "write")]
        await three.do(writing.release)
        assert (await world.inspect(client, world.name())).holders == ()

    @case
    async def test_break_takes_it_from_all_readers(self, world: World) -> None:
        client, other, (one, two) = world.connect(), world.connect(), world.actors(2)
        own = await one.do(client.rwlock(world.name()).read.acquire)
        foreign = await two.do(other.rwlock(world.name()).read.acquire)
        assert await world.do(lambda: client.break_(world.name()))
        assert own.lost_reason == "broken"
        await world.until(foreign.lost.is_set, world.soon + foreign.ttl)
        assert foreign.lost_reason == "broken"
        writing = await two.do(lambda: other.rwlock(world.name()).write.acquire(timeout=world.soon))
        assert writing.token > max(own.token, foreign.token)
        await two.do(writing.release)
        assert not await world.do(lambda: client.break_(world.name()))

    @case
    async def test_break_with_a_token_takes_it_from_the_holders_that_have_it(self, world: World) -> None:
        client, (one, two) = world.connect(), world.actors(2)
        rwlock = client.rwlock(world.name())
        reading = [await one.do(rwlock.read.acquire), await two.do(rwlock.read.acquire)]
        assert not await world.do(lambda: client.break_(world.name(), token=max(lease.token for lease in reading) + 1))
        assert all(lease.held for lease in reading)
        for token in {lease.token for lease in reading}:
            assert await world.do(partial(client.break_, world.name(), token=token))
        assert [lease.lost_reason for lease in reading] == ["broken", "broken"]
        assert (await world.inspect(client, world.name())).holders == ()
        writing = await one.do(lambda: rwlock.write.acquire(timeout=world.soon))
        assert await world.do(lambda: client.break_(world.name(), token=writing.token))
        assert writing.lost_reason == "broken"

    @case
    async def test_name_of_a_read_write_lock_is_of_no_other_kind(self, world: World) -> None:
        client, other, (one, two) = world.connect(), world.connect(), world.actors(2)
        reading = await one.do(client.rwlock(world.name()).read.acquire)
        with pytest.raises(holdfast.EngineRefused, match=r"rwlock.*lock"):
            await two.do(other.lock(world.name()).acquire)
        await one.do(reading.release)
        held = await one.do(client.lock(world.name("plain")).acquire)
        for mode in ("read", "write"):
            with pytest.raises(holdfast.EngineRefused, match=r"lock.*rwlock"):
                await two.do(getattr(other.rwlock(world.name("plain")), mode).acquire)
        assert held.held
        await one.do(held.release)


@needs("shared", "cross_process")
class KilledReaderCases:
    @case
    async def test_killed_reader_leaves_within_its_ttl(self, sync_world: World) -> None:
        world = sync_world
        async with helper(world) as child:
            token = await child.ask("acquire", name=world.name(), mode="read", ttl=world.paced(1.0))
            client = world.connect()
            assert await world.do(client.rwlock(world.name()).write.try_acquire) is None
            await child.kill()
        writing = await world.do(lambda: client.rwlock(world.name()).write.acquire(timeout=world.soon))
        assert writing.token > token
        await world.do(writing.release)

    @case
    async def test_killed_waiting_writer_delays_readers_for_two_seconds_at_most(self, sync_world: World) -> None:
        world = sync_world
        client, (one, two) = world.connect(), world.actors(2)
        reading = await one.do(client.rwlock(world.name()).read.acquire)
        # Where a session holds the place of a waiter, the session's time-out bounds it.
        async with helper(world, ttl=world.paced(1.0)) as child:
            await child.ask("reach")
            waiting = asyncio.create_task(child.ask("acquire", name=world.name(), mode="write"))
            await world.until_waiting(client, world.name())
            await child.kill()
            await asyncio.gather(waiting, return_exceptions=True)
        began = clock.now()
        lease = await two.do(lambda: client.rwlock(world.name()).read.acquire(timeout=4 * world.soon))
        assert clock.now() - began < 2.0 + world.soon, "a dead writer kept readers waiting"
        assert reading.held
        for each in (reading, lease):
            await world.do(each.release)

    @case
    async def test_release_of_a_writer_wakes_readers_of_another_process(self, sync_world: World) -> None:
        world = sync_world
        client = world.connect()
        writing = await world.do(client.rwlock(world.name()).write.acquire)
        async with helper(world) as child:
            await child.ask("reach")
            waiting = asyncio.create_task(child.ask("acquire", name=world.name(), mode="read"))
            await world.until_waiting(client, world.name())
            await world.do(writing.release)
            assert await waiting >= writing.token
            assert await child.ask("release", name=world.name()) is None
