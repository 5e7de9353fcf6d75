"""Fault R17: the master had granted the lock, but the replica that took over had not received it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast.testing.conformance.opening import Api
from tests.redis.wait_command import with_short_waits
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication
from tests.support.clients import APIS, LONG_TIMEOUT, SLACK, open_clients
from tests.support.register import Register
from tests.support.waiting import until

StartReplication = Callable[..., Replication]

UNAVAILABLE_AFTER = 0.5


def traces(server: RedisServer) -> set[str]:
    """Returns the keys of a server except fencing counters and tombstones of withdrawn claims."""
    keys: list[str] = server.ask("KEYS", "*")
    return {key for key in keys if ":gone:" not in key and not key.startswith("redisson_lock_token:")}


def withdrawn(server: RedisServer) -> int:
    keys: list[str] = server.ask("KEYS", "*:gone:*")
    return len(keys)


@APIS
async def test_R17_lock_without_replicas_is_granted_twice_and_the_fence_refuses_the_older_holder(
    api: Api, start_replication: StartReplication, tmp_path: Path
) -> None:
    pair = start_replication(1)
    fenced, unfenced = Register(tmp_path / "fenced", fenced=True), Register(tmp_path / "unfenced", fenced=False)
    async with open_clients(api) as ours:
        pair.links[0].black_hole_all()
        old = await ours.acquire(ours.connect(pair.url), "job")
        kept, lost = fenced.load(old), unfenced.load(old)
        pair.promote(pair.replicas[0])
        new = await ours.acquire(ours.connect(pair.replicas[0].url), "job")
        for register in (fenced, unfenced):
            register.store(new, register.load(new) | {2})
        assert old.held, "the double grant: the older holder is not notified yet"
        assert new.held
        assert new.token > old.token
        with pytest.raises(holdfast.StaleToken):
            fenced.store(old, kept | {1})
        unfenced.store(old, lost | {1})
    assert fenced.numbers() == {2}
    assert unfenced.numbers() == {1}, "without the fence an acknowledged number is lost"


@APIS
async def test_R17_acquire_with_replicas_is_refused_and_leaves_no_lock(
    api: Api, start_replication: StartReplication
) -> None:
    pair = start_replication(1)
    async with open_clients(api) as ours:
        locks = ours.connect(pair.url, replicas=1, unavailable_after=UNAVAILABLE_AFTER, request_timeout=LONG_TIMEOUT)
        await ours.do(locks.ping)
        pair.links[0].black_hole_all()
        began = clock.now()
        with pytest.raises(holdfast.EngineUnavailable, match="0 of 1 replicas acknowledged") as refused:
            await with_short_waits(ours.caller().do(locks.lock("job").acquire), pair.master)
        assert UNAVAILABLE_AFTER <= clock.now() - began < UNAVAILABLE_AFTER + SLACK
        assert not isinstance(refused.value, holdfast.OutcomeUnknown), "the outcome is known: no lock is held"
        assert withdrawn(pair.master) >= 1, "the master had granted it"
        assert traces(pair.master) == set()
        assert all(pair.master.ask("PTTL", key) > 0 for key in pair.master.ask("KEYS", "*"))
        pair.promote(pair.replicas[0])
        new = await ours.acquire(ours.connect(pair.replicas[0].url), "job")
        assert new.held, "the only holder"


@APIS
async def test_acquire_waits_until_the_replication_link_is_restored(
    api: Api, start_replication: StartReplication
) -> None:
    pair = start_replication(1)
    async with open_clients(api) as ours:
        # Half a second is left for the answer "too few", which no test helper hastens here.
        locks = ours.connect(pair.url, replicas=1, unavailable_after=20.0, request_timeout=2.5)
        pair.links[0].black_hole_all()
        waiting = ours.caller().do(lambda: locks.lock("job").acquire(timeout=20.0))
        await until(lambda: withdrawn(pair.master))
        pair.links[0].heal()
        lease = await waiting
        assert pair.replicas[0].ask("HKEYS", "job") == [lease.owner], "acknowledged before the acquire returned"
        await ours.do(lease.release)
        assert traces(pair.master) == set()


@APIS
async def test_one_live_replica_of_two_suffices_for_one_and_not_for_two(
    api: Api, start_replication: StartReplication
) -> None:
    three = start_replication(2)
    three.links[1].black_hole_all()
    async with open_clients(api) as ours:
        locks = ours.connect(three.url, unavailable_after=UNAVAILABLE_AFTER, request_timeout=LONG_TIMEOUT)
        lease = await ours.acquire(locks, "one", replicas=1)
        assert three.replicas[0].ask("EXISTS", "one") == 1
        waiting = ours.caller().do(locks.lock("two", replicas=2).acquire)
        with pytest.raises(holdfast.EngineUnavailable, match="only 1 of 2 replicas"):
            await with_short_waits(waiting, three.master, acknowledging=1)
        assert lease.held
        assert traces(three.master) == {"one", "holdfast_owner:{one}"}
