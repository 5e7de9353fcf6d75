"""Mutual exclusion, by counting: threads or tasks, clients, processes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from holdfast.testing.conformance.actors import Actor
from holdfast.testing.conformance.processes import helper
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case, needs


class ExclusionCases:
    @case
    async def test_a_counter_under_the_lock_is_exact(self, world: World) -> None:
        """Three clients with two actors each: contention inside the process and at the engine."""
        rounds, counter, inside = 12, 0, 0
        tokens: list[int] = []

        async def count(actor: Actor, client: Any) -> None:
            nonlocal counter, inside
            lock = client.lock(world.name())
            for _ in range(rounds):
                lease = await actor.do(lock.acquire)
                inside += 1
                seen = counter
                tokens.append(lease.token)
                await asyncio.sleep(0)
                assert inside == 1, "two holders at the same time"
                assert lease.held
                counter = seen + 1
                inside -= 1
                await actor.do(lease.release)

        clients = [world.connect() for _ in range(3)]
        await asyncio.gather(*(count(actor, client) for client in clients for actor in world.actors(2)))
        assert counter == 6 * rounds
        assert tokens == sorted(set(tokens)), "tokens must grow in the order of the grants"

    @case
    async def test_different_names_do_not_exclude_each_other(self, world: World) -> None:
        client = world.connect()
        leases = [await world.do(client.lock(world.name(str(n))).try_acquire) for n in range(5)]
        assert all(lease.held for lease in leases)
        for lease in leases:
            await world.do(lease.release)

    @needs("cross_process")
    @case
    async def test_a_counter_under_the_lock_of_several_processes_is_exact(self, world: World, tmp_path: Path) -> None:
        total = tmp_path / "total"
        total.write_text("0")
        async with helper(world) as one, helper(world) as two, helper(world) as three:
            tokens = await asyncio.gather(
                *(child.ask("count", name=world.name(), path=str(total), rounds=15) for child in (one, two, three))
            )
        assert total.read_text() == "45"
        assert all(own == sorted(own) for own in tokens)
        assert len({token for own in tokens for token in own}) == 45
