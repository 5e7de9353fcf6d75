"""The information for operators: holders, waiters and names of locks."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from typing import Any

import pytest

import holdfast
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case


class InspectingCases:
    @case
    async def test_a_free_lock_has_no_holders(self, world: World) -> None:
        client = world.connect()
        state = await world.inspect(client, world.name())
        assert (state.name, state.holders, state.waiters, state.remaining) == (world.name(), (), 0, None)
        lease = await world.do(client.lock(world.name()).acquire)
        await world.do(lease.release)
        assert (await world.inspect(client, world.name())).holders == ()

    @case
    async def test_held_lock_shows_owner_host_and_expiry(self, world: World) -> None:
        client, actor, other = world.connect(ttl=20), world.actor(), world.connect()
        lease = await actor.do(client.lock(world.name()).acquire)
        now = time.time()
        state = await world.inspect(other, world.name())
        assert (state.name, state.token, state.waiters) == (world.name(), lease.token, 0)
        assert state.remaining is not None
        assert 15 < state.remaining <= 20.1
        (holder,) = state.holders
        assert (holder.owner, holder.token) == (lease.owner, lease.token)
        assert (holder.host, holder.pid) == (platform.node(), os.getpid())
        assert holder.thread
        assert holder.program
        assert holder.since is not None
        assert abs(holder.since - now) < 5
        assert holder.until is not None
        assert 15 < holder.until - now < 25
        assert holder.count == 1
        await actor.do(lease.release)

    @case
    async def test_waiters_are_counted(self, world: World) -> None:
        clients, actors = [world.connect() for _ in range(3)], world.actors(3)
        lease = await actors[0].do(clients[0].lock(world.name()).acquire)
        waiting = []
        for number in (1, 2):
            waiting.append(actors[number].within(clients[number].lock(world.name()), lambda lease: lease.held))
            await world.until_waiting(clients[0], world.name(), number)
            assert (await world.inspect(clients[0], world.name())).waiters == number
        await actors[0].do(lease.release)
        assert await asyncio.gather(*waiting) == [True, True]
        assert (await world.inspect(clients[0], world.name())).waiters == 0

    @case
    async def test_a_holder_shows_its_thread_or_task_and_its_label(self, world: World) -> None:
        actors, other = world.actors(2), world.connect()
        clients = [world.connect(label="billing \N{EURO SIGN} 1"), world.connect()]
        for number, (actor, client, label) in enumerate(
            zip(actors, clients, ("billing \N{EURO SIGN} 1", None), strict=True)
        ):
            lease = await actor.do(client.lock(world.name()).acquire)
            (holder,) = (await world.inspect(other, world.name())).holders
            assert (holder.thread, holder.label) == (f"actor-{number}", label)
            await actor.do(lease.release)

    @case
    async def test_waiters_are_listed_in_order_with_their_details(self, world: World) -> None:
        actors, labels = world.actors(4), [None, "first", "second", "third"]
        clients = [world.connect(label=label) for label in labels]
        fair = clients[0].guarantees.fair
        lease = await actors[0].do(clients[0].lock(world.name()).acquire)
        began = time.time()
        waiting: list[asyncio.Future[Any]] = []
        for number in (1, 2, 3):
            waiting.append(actors[number].do(clients[number].lock(world.name(), fair=fair).acquire))
            await world.until_waiting(clients[0], world.name(), number)
        state = await world.inspect(clients[0], world.name())
        assert state.waiters == 3
        assert [waiter.label for waiter in state.queue] == labels[1:]
        assert [waiter.thread for waiter in state.queue] == ["actor-1", "actor-2", "actor-3"]
        here = (platform.node(), os.getpid(), state.holders[0].program)
        assert {(waiter.host, waiter.pid, waiter.program) for waiter in state.queue} == {here}
        times = [waiter.since or 0.0 for waiter in state.queue]
        assert times == sorted(times)
        assert abs(times[0] - began) < 5
        assert len({waiter.owner for waiter in state.queue} | {state.holders[0].owner}) == 4
        for number, waiter in enumerate(state.queue, 1):
            await world.do(lease.release)
            lease = await _first_of(waiting)
            if fair:
                left = (await world.inspect(clients[0], world.name())).queue
                assert (lease.owner, left) == (waiter.owner, state.queue[number:])
            else:  # one that was woken too has left the queue while it asks, and joins again
                await world.until_waiting(clients[0], world.name(), 3 - number)
        await world.do(lease.release)

    @case
    async def test_a_waiter_that_gave_up_is_not_listed(self, world: World) -> None:
        actors, clients = world.actors(3), [world.connect(label=label) for label in (None, "leaves", "stays")]
        lease = await actors[0].do(clients[0].lock(world.name()).acquire)
        leaving = actors[1].do(lambda: clients[1].lock(world.name()).try_acquire(timeout=world.paced(0.3)))
        staying = actors[2].do(clients[2].lock(world.name()).acquire)
        assert await leaving is None

        async def only_one_is_listed() -> bool:
            return [waiter.label for waiter in (await world.inspect(clients[0], world.name())).queue] == ["stays"]

        await world.until(only_one_is_listed)
        await actors[0].do(lease.release)
        await actors[2].do((await staying).release)

    @case
    async def test_lock_shows_whether_it_is_locked_and_its_owner(self, world: World) -> None:
        lock, other = world.connect().lock(world.name()), world.connect().lock(world.name())
        assert await world.do(other.locked) is False
        lease = await world.do(lock.acquire)
        assert await world.do(lock.locked) is True
        assert await world.do(other.locked) is True
        state = await world.do(other.inspect)
        assert (state.name, state.holders[0].owner) == (world.name(), lease.owner)
        await world.do(lease.release)
        assert await world.do(other.locked) is False

    @case
    async def test_re_entry_is_one_hold_at_the_engine(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        leases = [await actor.do(client.lock(world.name()).acquire) for _ in range(3)]
        (holder,) = (await world.inspect(world.connect(), world.name())).holders
        assert (holder.owner, holder.count) == (leases[0].owner, 1)
        for lease in leases:
            await actor.do(lease.release)

    @case
    async def test_locks_lists_held_locks_by_prefix(self, world: World) -> None:
        client, other = world.connect(), world.connect()
        names = {world.name(name) for name in ("a/1", "a/2", "b/1")}
        leases = {name: await world.do(client.lock(name).acquire) for name in names}
        found = await world.list_locks(other)
        assert {state.name for state in found} == names
        assert all(state.token == leases[state.name].token for state in found)
        assert all(state.holders[0].owner == leases[state.name].owner for state in found)
        of_a = await world.list_locks(other, world.name("a/"))
        assert {state.name for state in of_a} == names - {world.name("b/1")}
        await world.do(leases[world.name("a/1")].release)
        assert {state.name for state in await world.list_locks(other)} == names - {world.name("a/1")}
        for lease in leases.values():
            await world.do(lease.release)
        assert await world.list_locks(other) == []

    @case
    async def test_a_prefix_is_not_a_pattern(self, world: World) -> None:
        client = world.connect()
        odd, plain = world.name("a*[b]?%_1"), world.name("axxb1")
        leases = [await world.do(client.lock(name).acquire) for name in (odd, plain)]
        for prefix in ("a*[b]?%_", "a*", "a*[", "a"):
            found = {state.name for state in await world.list_locks(client, world.name(prefix))}
            assert found == ({odd, plain} if prefix == "a" else {odd})
        assert await world.list_locks(client, world.name("a?")) == []
        for lease in leases:
            await world.do(lease.release)

    @case
    async def test_namespaces_are_separate_and_omitted_from_names(self, world: World) -> None:
        spaces = [world.name("one"), world.name("two")]
        one, two = (world.connect(namespace=space) for space in spaces)
        plain = world.connect()
        leases = [await world.do(client.lock("order").try_acquire) for client in (one, two)]
        assert all(lease.held for lease in leases)
        assert [lease.name for lease in leases] == ["order", "order"]
        assert (await world.inspect(one, "order")).name == "order"
        assert (await world.inspect(one, "order")).token == leases[0].token
        assert [state.name for state in await world.list_locks(one, "")] == ["order"]
        assert [state.name for state in await world.list_locks(two, "ord")] == ["order"]
        assert await world.list_locks(two, "x") == []
        assert {state.name for state in await world.list_locks(plain)} == {f"{space}:order" for space in spaces}
        assert await world.do(plain.lock(f"{spaces[0]}:order").try_acquire) is None
        await world.do(lambda: one.break_("order"))
        assert leases[1].held
        with pytest.raises(holdfast.LockLost) as caught:
            await world.do(leases[0].release)
        assert caught.value.name == "order"
        await world.do(leases[1].release)

    @case
    async def test_ping_answers(self, world: World) -> None:
        client = world.connect()
        assert await world.do(client.ping) is None


async def _first_of(waiting: list[asyncio.Future[Any]]) -> Any:
    """Wait for the first that is done, remove it from the list, and return its result."""
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    first = done.pop()
    waiting.remove(first)
    return first.result()
