"""Objects that cannot be pickled or copied, and an engine's description of itself."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

import holdfast
from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case


class PortabilityCases:
    @pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy], ids=lambda how: how.__name__)
    @case
    async def test_clients_locks_and_leases_refuse_to_be_copied(self, world: World, how: Any) -> None:
        client = world.connect()
        lock = client.lock(world.name())
        lease = await world.do(lock.acquire)
        for thing, remedy in ((client, "URL"), (lock, "URL"), (lease, "detach")):
            with pytest.raises(holdfast.UsageError, match=remedy):
                how(thing)
        await world.do(lease.release)

    @case
    async def test_guarantees_are_frozen_data(self, world: World) -> None:
        given = world.connect().guarantees
        assert given is world.connect().guarantees or given == world.connect().guarantees
        promises = [field.name for field in dataclasses.fields(given)]
        bools = {name for name in promises if isinstance(getattr(given, name), bool)}
        assert bools == {
            "cross_process", "cross_host", "fair", "fencing", "survives_restart", "survives_failover",
            "shared", "permits", "registers", "detach",
        }  # fmt: skip
        assert given.needs_clocks
        assert given.loss_bound
        with pytest.raises(dataclasses.FrozenInstanceError):
            given.fencing = False
        assert given.cross_process or not given.cross_host

    @case
    async def test_require_refuses_an_engine_without_the_guarantee(self, world: World) -> None:
        client = world.connect()
        for field in dataclasses.fields(client.guarantees):
            given = getattr(client.guarantees, field.name)
            if given is True:
                assert client.lock(world.name(), require={field.name}).name == world.name()
            else:
                with pytest.raises(holdfast.UsageError, match=field.name):
                    client.lock(world.name(), require={field.name})
        with pytest.raises(holdfast.UsageError, match="survives_everything"):
            client.lock(world.name(), require={"survives_everything"})

    @case
    async def test_reprs_show_type_name_and_state(self, world: World) -> None:
        client = world.connect()
        lock = client.lock(world.name())
        lease = await world.do(lock.acquire)
        assert world.name() in repr(lock)
        assert world.name() in repr(lease)
        assert str(lease.token) in repr(lease)
        assert "held" in repr(lease)
        await world.do(lease.release)
        assert "released" in repr(lease)
        assert type(client).__name__ in repr(client)
