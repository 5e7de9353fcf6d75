"""What operators see: who holds what, who waits, under which names."""

from __future__ import annotations

import asyncio
import os
import platform
import time

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
    async def test_a_held_lock_says_who_where_and_until_when(self, world: World) -> None:
        client, actor, stranger = world.connect(ttl=20), world.actor(), world.connect()
        lease = await actor.do(client.lock(world.name()).acquire)
        now = time.time()
        state = await world.inspect(stranger, world.name())
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
    async def test_locks_lists_what_is_held_by_prefix(self, world: World) -> None:
        client, stranger = world.connect(), world.connect()
        names = {world.name(name) for name in ("a/1", "a/2", "b/1")}
        leases = {name: await world.do(client.lock(name).acquire) for name in names}
        found = await world.list_locks(stranger)
        assert {state.name for state in found} == names
        assert all(state.token == leases[state.name].token for state in found)
        assert all(state.holders[0].owner == leases[state.name].owner for state in found)
        of_a = await world.list_locks(stranger, world.name("a/"))
        assert {state.name for state in of_a} == names - {world.name("b/1")}
        await world.do(leases[world.name("a/1")].release)
        assert {state.name for state in await world.list_locks(stranger)} == names - {world.name("a/1")}
        for lease in leases.values():
            await world.do(lease.release)
        assert await world.list_locks(stranger) == []

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
    async def test_namespaces_are_apart_and_speak_names_without_themselves(self, world: World) -> None:
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
