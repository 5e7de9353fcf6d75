"""The events of a client with an observer: the same on every engine, sync and async."""

from __future__ import annotations

import functools

import pytest

import holdfast
from holdfast.observer import Acquired, Broken, Busy, Event, Lost, Released, Renewed, Waiting
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case, needs


class ObservingCases:
    @case
    async def test_events_of_holds_are_in_order_and_re_entry_is_not_reported(self, world: World) -> None:
        events: list[Event] = []
        client = world.connect(observer=events.append, ttl=world.lasting)
        lock = client.lock(world.name())
        lease = await world.do(lock.acquire)
        again = await world.do(lock.acquire)
        await world.do(again.release)
        await world.do(lease.release)
        await world.do(client.close)
        acquired, released = (event for event in events if not isinstance(event, Renewed))
        assert isinstance(acquired, Acquired)
        assert (acquired.name, acquired.token, acquired.owner) == (world.name(), lease.token, lease.owner)
        assert (acquired.waited, acquired.inherited) == (False, False)
        assert acquired.engine == client._engine.scheme
        assert isinstance(released, Released)
        assert (released.outcome, released.token, released.owner) == ("released", lease.token, lease.owner)
        assert 0 <= released.duration < world.soon
        assert 0 <= released.held < world.soon
        assert acquired.at <= released.at

    @case
    async def test_a_busy_lock_reports_the_wait_and_the_timeout(self, world: World) -> None:
        events: list[Event] = []
        timeout = world.paced(0.5)  # long enough for an answer: otherwise EngineUnavailable
        holder, client = world.connect(ttl=world.lasting), world.connect(observer=events.append)
        lease = await world.do(holder.lock(world.name()).acquire)
        assert await world.do(client.lock(world.name()).try_acquire) is None
        with pytest.raises(holdfast.AcquireTimeout):
            await world.do(functools.partial(client.lock(world.name()).acquire, timeout=timeout))
        await world.do(lease.release)
        await world.do(client.close)
        immediate, waiting, busy = events
        assert isinstance(immediate, Busy)
        assert isinstance(waiting, Waiting)
        assert isinstance(busy, Busy)
        assert (immediate.waited, immediate.timeout) == (False, 0.0)
        assert (waiting.name, waiting.timeout) == (world.name(), timeout)
        assert (busy.waited, busy.timeout) == (True, timeout)
        assert busy.duration >= timeout

    @case
    async def test_a_waiter_reports_how_long_it_waited(self, world: World) -> None:
        events: list[Event] = []
        holder, client, actor = world.connect(ttl=world.lasting), world.connect(observer=events.append), world.actor()
        lease = await world.do(holder.lock(world.name()).acquire)
        waiting = actor.do(client.lock(world.name()).acquire)
        await world.until_waiting(holder, world.name())
        await world.do(lease.release)
        got = await waiting
        await actor.do(got.release)
        await world.do(client.close)
        _, acquired, _ = (event for event in events if not isinstance(event, Renewed))
        assert isinstance(events[0], Waiting)
        assert isinstance(acquired, Acquired)
        assert acquired.waited
        assert acquired.duration > 0

    @case
    async def test_a_broken_lock_is_reported_as_lost_once(self, world: World) -> None:
        events: list[Event] = []
        client = world.connect(observer=events.append, ttl=world.lasting)
        lease = await world.do(client.lock(world.name()).acquire)
        await world.do(lambda: client.break_(world.name()))
        with pytest.raises(holdfast.LockLost):
            await world.do(lease.release)
        await world.do(client.close)
        ends = [event for event in events if isinstance(event, (Lost, Released))]
        assert [(event.name, event.token, getattr(event, "reason", None)) for event in ends] == [
            (world.name(), lease.token, "broken")
        ]
        assert [event.held for event in events if isinstance(event, Broken)] == [True]

    @case
    async def test_renewals_are_reported_with_the_remaining_time(self, world: World) -> None:
        events: list[Event] = []
        client = world.connect(observer=events.append, ttl=world.lasting)
        lease = await world.do(client.lock(world.name()).acquire)
        await world.do(lambda: lease.renew())
        await world.do(lease.release)
        await world.do(client.close)
        renewed = [event for event in events if isinstance(event, Renewed)]
        assert renewed
        assert all((event.name, event.count, event.recovered) == (world.name(), 1, 0) for event in renewed)
        assert all(0 < event.remaining <= lease.ttl for event in renewed)

    @case
    async def test_a_closed_client_has_reported_the_end_of_every_hold(self, world: World) -> None:
        events: list[Event] = []
        client = world.connect(observer=events.append, ttl=world.lasting)
        leases = [await world.do(client.lock(world.name(str(n))).acquire) for n in range(3)]
        await world.do(client.close)
        lost = {event.token: event.reason for event in events if isinstance(event, Lost)}
        assert sorted(lost.values()) == ["closed"] * 3
        assert {event.name for event in events if isinstance(event, Lost)} == {lease.name for lease in leases}

    @needs("shared")
    @case
    async def test_every_hold_of_a_read_write_lock_ends_once(self, world: World) -> None:
        events: list[Event] = []
        client = world.connect(observer=events.append, ttl=world.lasting)
        lock, (one, two) = client.rwlock(world.name()), world.actors(2)
        readers = [await one.do(lock.read.acquire), await two.do(lock.read.acquire)]
        for lease in readers:
            await world.do(lease.release)
        writing = await one.do(lock.write.acquire)
        nested = await one.do(lock.read.acquire)
        await one.do(writing.release)
        broken = [nested, await two.do(lambda: lock.read.acquire(timeout=world.soon))]
        await world.do(lambda: client.break_(world.name()))
        for lease in broken:
            with pytest.raises(holdfast.LockLost):
                await world.do(lease.release)
        await world.do(client.close)
        assert _holds(events) == {
            **{(lease.token, lease.owner): "released" for lease in (*readers, writing)},
            **{(lease.token, lease.owner): "broken" for lease in broken},
        }

    @needs("permits")
    @case
    async def test_every_hold_of_permits_ends_once(self, world: World) -> None:
        events: list[Event] = []
        client = world.connect(observer=events.append, ttl=world.lasting)
        semaphore = client.semaphore(world.name(), 3)
        released = await world.do(lambda: semaphore.acquire(2))
        kept = await world.do(semaphore.acquire)
        assert await world.do(semaphore.try_acquire) is None
        await world.do(released.release)
        await world.do(client.close)
        assert _holds(events) == {(released.token, released.owner): "released", (kept.token, kept.owner): "closed"}
        assert [event.waited for event in events if isinstance(event, Busy)] == [False]

    @needs("registers")
    @case
    async def test_a_condition_wait_ends_one_hold_and_begins_another(self, world: World) -> None:
        events: list[Event] = []
        client = world.connect(observer=events.append, ttl=world.lasting)
        lock, actor, seen = client.lock(world.name()), world.actor(), list[tuple[int, str]]()
        outer, inner = await actor.do(lock.acquire), await actor.do(lock.acquire)
        seen.append((outer.token, outer.owner))
        for _ in range(2):
            assert await actor.do(lambda: client.condition(lock).wait(timeout=world.paced(0.01))) is False
            seen.append((outer.token, outer.owner))
        await actor.do(inner.release)
        await actor.do(outer.release)
        await world.do(client.close)
        assert len(set(seen)) == 3
        assert _holds(events) == dict.fromkeys(seen, "released")


def _holds(events: list[Event]) -> dict[tuple[int, str], str]:
    """Token and owner of each hold, and how it ended. Each begins once, and then ends once."""
    began: set[tuple[int, str]] = set()
    ended: dict[tuple[int, str], str] = {}
    for event in events:
        if isinstance(event, Acquired):
            assert (event.token, event.owner) not in began
            began.add((event.token, event.owner))
        elif isinstance(event, (Lost, Released)):
            hold = event.token, event.owner
            assert hold in began - ended.keys()
            ended[hold] = event.reason if isinstance(event, Lost) else event.outcome
    assert began == ended.keys()
    return ended
