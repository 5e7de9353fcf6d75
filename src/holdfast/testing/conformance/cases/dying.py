"""Processes that fork, freeze, exit or are killed; and signals that raise."""

from __future__ import annotations

import asyncio

from holdfast.testing.conformance.processes import helper, run_scenario
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case, needs


@needs("cross_process")
class DyingCases:
    @case
    async def test_lock_held_by_another_process_is_busy(self, world: World) -> None:
        async with helper(world) as child:
            token = await child.ask("acquire", name=world.name())
            assert not await world.is_free(world.name())
            (holder,) = (await world.inspect(world.connect(), world.name())).holders
            assert (holder.token, holder.pid) == (token, child.pid)
            assert await child.ask("release", name=world.name()) is None
            assert await world.is_free(world.name())

    @case
    async def test_a_release_wakes_the_waiter_of_another_process(self, sync_world: World) -> None:
        world = sync_world
        client = world.connect()
        lease = await world.do(client.lock(world.name()).acquire)
        async with helper(world) as child:
            await child.ask("reach")
            waiting = asyncio.create_task(child.ask("acquire", name=world.name()))
            await world.until_waiting(client, world.name())
            await world.do(lease.release)
            assert await waiting > lease.token
            assert await child.ask("release", name=world.name()) is None

    @case
    async def test_interpreter_exit_releases_the_lock(self, world: World) -> None:
        async with helper(world) as child:
            await child.ask("acquire", name=world.name())
            await child.leave()
            assert await world.is_free(world.name())

    @case
    async def test_lock_of_a_killed_process_is_free_after_its_ttl(self, sync_world: World) -> None:
        world = sync_world
        async with helper(world) as child:
            token = await child.ask("acquire", name=world.name(), ttl=world.paced(0.3))
            await child.kill()
        client = world.connect()
        lease = await world.do(lambda: client.lock(world.name()).acquire(timeout=world.soon))
        assert lease.token > token
        await world.do(lease.release)

    @case
    async def test_killed_waiter_does_not_block_other_waiters(self, sync_world: World) -> None:
        world = sync_world
        client, other = world.connect(), world.connect()
        lease = await world.do(client.lock(world.name()).acquire)
        # If each waiter has a place in the engine's queue, a dead one keeps it for a ttl; on other engines for less.
        short = {"ttl": world.paced(0.5)} if client._engine.strict_order else {}
        async with helper(world, **short) as child:
            await child.ask("reach")
            waiting = asyncio.create_task(child.ask("acquire", name=world.name()))
            await world.until_waiting(client, world.name())
            await child.kill()
            await asyncio.gather(waiting, return_exceptions=True)
        await world.do(lease.release)
        next_lease = await world.do(lambda: other.lock(world.name()).acquire(timeout=world.soon))
        await world.do(next_lease.release)

    @case
    async def test_frozen_holder_reports_its_loss_immediately_after_it_resumes(self, world: World) -> None:
        client = world.connect()
        async with helper(world) as child:
            token = await child.ask("acquire", name=world.name(), ttl=world.paced(0.3))
            child.freeze()
            try:
                lease = await world.do(lambda: client.lock(world.name()).acquire(timeout=world.soon))
            finally:
                child.thaw()
            assert lease.token > token
            held, reason = await child.ask("look", name=world.name())
            assert not held
            assert reason in ("expired", "stolen", "unreachable")
            assert await child.ask("release", name=world.name()) == reason
            assert lease.held
            assert not await world.is_free(world.name())
            await world.do(lease.release)

    @case
    async def test_a_forked_child_has_no_lock_and_a_new_identity(self, sync_world: World) -> None:
        facts = await run_scenario(sync_world, "fork")
        tokens = facts.pop("tokens")
        assert tokens == sorted(set(tokens))
        assert facts == {
            "child holds it": False,
            "child's reason": "forked",
            "check": "forked",
            "renew": "forked",
            "release": "forked",
            "child got it": False,
            "parent lost it": [],
            "child ended with": 0,
            "clients": 2,
        }
        assert await sync_world.is_free(sync_world.name())

    @case
    async def test_fork_while_other_threads_acquire_and_release_works(self, sync_world: World) -> None:
        facts = await run_scenario(sync_world, "fork_while_threads_lock")
        assert facts == {"codes": [0] * 10, "held": [], "stuck": []}


class InterruptedCases:
    @case
    async def test_ctrl_c_while_waiting_leaves_no_waiter_and_no_lock(self, sync_world: World) -> None:
        facts = await run_scenario(sync_world, "interrupt_a_waiter")
        assert facts["engine"] == facts["process"] == "interrupted"
        assert facts["engine: free after"] < sync_world.soon
        assert facts["process: free after"] < sync_world.soon
        assert facts["waiters"] == 0

    @case
    async def test_signal_at_any_moment_leaves_the_lock_free(self, sync_world: World) -> None:
        facts = await run_scenario(sync_world, "interrupt_anywhere")
        assert facts["interrupted"] > 20, "the signals came too late to test anything"
        assert facts["worst"] < sync_world.soon
