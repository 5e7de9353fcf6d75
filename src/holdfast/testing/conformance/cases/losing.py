"""How a loss is reported: by ``held``, by ``lost.wait``, by a callback, and at the end of the block."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any, Final

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast.testing.conformance.actors import Actor
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case

#: A loss must be visible this soon to code that only reads ``held``. It does no I/O: this allows for scheduler stalls.
_LOSS_SEEN_WITHIN: Final = 3.0
#: A ttl long enough to enter the body, even if the scheduler stalls.
ENTERED: Final = 1.0


class Boom(Exception):
    pass


async def expiring(world: World, actor: Actor, **policy: Any) -> Any:
    """A lease that expires soon."""
    return await actor.do(world.connect().lock(world.name(), ttl=world.paced(0.15), renew=False, **policy).acquire)


def spin_until_lost(lease: Any) -> None:
    """A body that only reads ``held``, without an await."""
    deadline = clock.now() + lease.ttl + _LOSS_SEEN_WITHIN
    while lease.held:
        assert clock.now() < deadline


class LosingCases:
    @case
    async def test_check_distinguishes_held_released_and_lost(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lease = await actor.do(client.lock(world.name("a")).acquire)
        assert lease.check() is None
        await actor.do(lease.release)
        with pytest.raises(holdfast.NotHeld) as released:
            lease.check()
        assert released.value.name == world.name("a")
        assert lease.lost_reason is None
        lost = await expiring(world, actor)
        await actor.do(lambda: lost.lost.wait(world.soon))
        with pytest.raises(holdfast.LockLost) as caught:
            lost.check()
        assert (caught.value.reason, caught.value.token) == ("expired", lost.token)

    @case
    async def test_reading_the_state_of_a_lease_sends_no_request(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        lease = await actor.do(client.lock(world.name()).acquire)
        asked = await world.count_requests(client)
        for _ in range(3):
            lease.check()
            assert (lease.held, bool(lease.lost), lease.lost.is_set(), lease.lost_reason) == (True, False, False, None)
            assert lease.remaining > 0
            assert repr(lease)
        assert not asked
        await actor.do(lease.release)

    @case
    async def test_wait_for_the_loss_ends_with_loss_release_or_timeout(self, world: World) -> None:
        client, (one, two) = world.connect(), world.actors(2)
        lease = await one.do(client.lock(world.name("a")).acquire)
        began = clock.now()
        assert await two.do(lambda: lease.lost.wait(world.paced(0.05))) is False
        assert clock.now() - began >= world.paced(0.05)
        waiting = two.do(lambda: lease.lost.wait(world.soon * 3))
        await one.do(lease.release)
        assert await waiting is False
        lost = await expiring(world, one)
        waiting = two.do(lost.lost.wait)
        assert await waiting is True
        assert await one.do(lambda: lost.lost.wait(0)) is True

    @case
    async def test_all_handles_of_a_hold_are_lost_together(self, world: World) -> None:
        actor, client = world.actor(), world.connect()
        lock = client.lock(world.name(), ttl=world.paced(1.0), renew=False)
        one, two = await actor.do(lock.acquire), await actor.do(lock.acquire)
        assert await actor.do(lambda: one.lost.wait(world.soon)) is True
        assert (one.lost_reason, two.lost_reason) == ("expired", "expired")
        for lease in (one, two):
            with pytest.raises(holdfast.LockLost):
                await actor.do(lease.release)

    @case
    async def test_on_lost_is_called_exactly_once_and_not_by_the_watchdog(self, world: World) -> None:
        calls: list[tuple[Any, threading.Thread]] = []
        later: list[Any] = []
        actor = world.actor()
        lease = await expiring(world, actor, on_lost=lambda lease: calls.append((lease, threading.current_thread())))
        lease.on_lost(lambda lease: calls.append((lease, threading.current_thread())))
        await actor.do(lambda: lease.lost.wait(world.soon))
        await world.until(lambda: len(calls) == 2)
        with pytest.raises(holdfast.LockLost):
            await actor.do(lease.release)
        other = await expiring(world, actor)
        await actor.do(lambda: other.lost.wait(world.soon))
        other.on_lost(later.append)  # lost already: called immediately, after all earlier callbacks
        await world.until(lambda: later == [other])
        assert [lost for lost, _ in calls] == [lease, lease]
        threads = {thread.name for _, thread in calls}
        assert threads == ({"MainThread"} if world.api == "async" else {"holdfast-callbacks"})

    @case
    async def test_on_lost_is_not_called_for_a_released_lease(self, world: World) -> None:
        calls: list[Any] = []
        client, actor = world.connect(), world.actor()
        lease = await actor.do(
            client.lock(world.name(), ttl=world.paced(1.0), renew=False, on_lost=calls.append).acquire
        )
        await actor.do(lease.release)
        lock = client.lock(world.name(), ttl=world.paced(1.0), renew=False)
        released, lost = await actor.do(lock.acquire), await actor.do(lock.acquire)
        released.on_lost(calls.append)
        await actor.do(released.release)  # the hold continues and is lost later, which does not concern this lease
        lost.on_lost(calls.append)
        await world.until(lambda: calls)
        assert calls == [lost]

    @case
    async def test_exception_in_on_lost_is_logged_and_does_not_affect_other_callbacks(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        calls: list[Any] = []

        def fail(lease: Any) -> None:
            raise Boom("in a callback")

        actor = world.actor()
        lease = await expiring(world, actor)
        lease.on_lost(fail)
        lease.on_lost(calls.append)

        def logged() -> list[logging.LogRecord]:
            return [record for record in caplog.records if record.exc_info and record.exc_info[0] is Boom]

        with caplog.at_level(logging.ERROR, "holdfast"):
            await world.until(lambda: calls == [lease] and logged())
        (record,) = logged()
        assert record.name.startswith("holdfast")
        next_lease = await expiring(world, actor, on_lost=calls.append)
        await world.until(lambda: calls == [lease, next_lease])

    @case
    async def test_on_lost_may_be_a_coroutine_function(
        self, async_world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        calls: list[Any] = []

        async def report(lease: Any) -> None:
            await asyncio.sleep(0)
            calls.append((lease, asyncio.get_running_loop()))

        async def fail(lease: Any) -> None:
            await asyncio.sleep(0)
            raise Boom("in a coroutine")

        lease = await expiring(async_world, async_world.actor(), on_lost=report)
        lease.on_lost(fail)
        with caplog.at_level(logging.ERROR, "holdfast"):
            await async_world.until(lambda: calls and any(record.exc_info for record in caplog.records))
        assert calls == [(lease, asyncio.get_running_loop())]

    @case
    async def test_a_slow_on_lost_does_not_delay_renewal(self, sync_world: World) -> None:
        world, gate, entered = sync_world, threading.Event(), threading.Event()

        def block(lease: Any) -> None:
            entered.set()
            gate.wait(10)

        client, actor = world.connect(ttl=world.lasting), world.actor()
        renewed = await actor.do(client.lock(world.name("renewed")).acquire)
        short = {"ttl": world.paced(0.15), "renew": False}
        lost = await actor.do(client.lock(world.name("lost"), **short, on_lost=block).acquire)
        try:
            assert await actor.do(lambda: entered.wait(world.soon))
            await world.until_renewed(renewed)
            assert not lost.held
        finally:
            gate.set()
        await actor.do(renewed.release)

    @case
    async def test_leaving_the_block_of_a_lost_lock_raises(self, world: World) -> None:
        actor, client = world.actor(), world.connect()
        lock = client.lock(world.name(), ttl=world.paced(0.15), renew=False)
        for body in (spin_until_lost, lambda lease: lease.lost.wait(world.soon)):
            with pytest.raises(holdfast.LockLost) as caught:
                await actor.within(lock, body)
            assert caught.value.reason == "expired"
            assert caught.value.__cause__ is None
            await world.until_free(world.name())

    @case
    async def test_exception_of_the_body_takes_precedence_and_carries_a_note(self, world: World) -> None:
        def fail(lease: Any) -> None:
            spin_until_lost(lease)
            raise Boom("the body's own")

        actor, client = world.actor(), world.connect()
        with pytest.raises(Boom) as caught:
            await actor.within(client.lock(world.name(), ttl=world.paced(ENTERED), renew=False), fail)
        assert caught.value.__notes__ == [f"lock {world.name()!r} lost: expired"]

    @case
    async def test_an_exception_in_the_body_releases_the_lock(self, world: World) -> None:
        def fail(lease: Any) -> None:
            raise Boom("the body's own")

        actor, client = world.actor(), world.connect()
        with pytest.raises(Boom) as caught:
            await actor.within(client.lock(world.name()), fail)
        assert not hasattr(caught.value, "__notes__")
        assert await world.is_free(world.name())

    @case
    async def test_lease_that_has_ended_cannot_be_entered(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        released = await actor.do(client.lock(world.name("a")).acquire)
        await actor.do(released.release)
        entered: list[Any] = []
        with pytest.raises(holdfast.NotHeld):
            await actor.within(released, entered.append)
        lost = await expiring(world, actor)
        await actor.do(lambda: lost.lost.wait(world.soon))
        with pytest.raises(holdfast.LockLost):
            await actor.within(lost, entered.append)
        assert entered == []
