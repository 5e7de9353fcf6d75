"""Elections: one candidate leads, the next one follows, and observers learn of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import holdfast
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case, needs


@needs("fair")
class ElectionCases:
    @case
    async def test_one_candidate_leads_and_the_next_one_follows_when_it_resigns(self, world: World) -> None:
        candidates = [world.connect().election(world.name(), value=value) for value in ("one", "two")]
        actors = world.actors(2)
        first = await actors[0].do(candidates[0].campaign)
        assert first.held
        following = actors[1].do(partial(candidates[1].campaign, world.soon * 3))
        await world.until_waiting(candidates[0]._client, world.name())
        leader = await world.do(candidates[1].leader)
        assert (leader.value, leader.token, leader.owner) == ("one", first.token, first.owner)
        assert not following.done()
        await actors[0].do(candidates[0].resign)
        assert not first.held
        second = await following
        assert second.token > first.token
        leader = await world.do(candidates[0].leader)
        assert (leader.value, leader.token) == ("two", second.token)
        await actors[0].do(candidates[0].resign)  # without effect: it does not lead
        assert second.held
        await actors[1].do(second.release)
        assert await world.do(candidates[0].leader) is None
        await actors[1].do(candidates[1].resign)

    @case
    async def test_campaign_ends_at_its_timeout_while_another_one_leads(self, world: World) -> None:
        election, actors = world.connect().election(world.name()), world.actors(2)
        await actors[0].do(election.campaign)
        other = world.connect().election(world.name())
        with pytest.raises(holdfast.AcquireTimeout):
            await actors[1].do(partial(other.campaign, world.paced(0.5)))
        assert (await world.do(election.leader)).value is None
        await actors[0].do(election.resign)
        assert await world.is_free(world.name())

    @case
    async def test_observer_sees_the_latest_leader_and_that_there_is_none(self, world: World) -> None:
        client, actor, watcher = world.connect(), world.actor(), world.actor()
        election = client.election(world.name(), value="me")
        seen = client.election(world.name()).observe()

        def following() -> Any:
            return anext(seen) if world.api == "async" else next(seen)

        assert await watcher.do(following) is None
        change = watcher.do(following)
        await actor.do(election.campaign)
        assert (await change).value == "me"
        change = watcher.do(following)
        await actor.do(election.resign)
        assert await change is None
        if world.api == "async":
            await seen.aclose()

    @case
    async def test_leader_whose_lease_is_broken_learns_it_and_can_campaign_again(self, world: World) -> None:
        client, actor = world.connect(), world.actor()
        election = client.election(world.name())
        first = await actor.do(election.campaign)
        await world.do(lambda: client.break_(world.name()))
        await world.until(lambda: first.lost)
        second = await actor.do(partial(election.campaign, world.soon))
        assert second.token > first.token
        await actor.do(election.resign)
        assert not second.held


class ElectionRefusedCases:
    @case
    async def test_without_fair_queues_elections_are_refused_with_the_reason(self, world: World) -> None:
        client = world.connect()
        if not client.guarantees.fair:
            with pytest.raises(holdfast.UsageError, match="keeps no queue"):
                client.election(world.name())
        with pytest.raises(holdfast.UsageError):
            client.election(world.name(), value="x" * 1000)
