"""A replica has taken over, and the old master still serves the only client that can reach it (rule 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast.engines.base import Found, RequestFailed
from holdfast.engines.redis.dialect.leases import encode_renew
from holdfast.engines.redis.session import RedisSession
from holdfast.testing.conformance.opening import Api
from tests.redis.support import TIMEOUT, make_attempt, on_api
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication
from tests.support.clients import APIS, SLACK, LossReports, open_clients
from tests.support.register import Register
from tests.support.waiting import LASTING, eventually, renewed, until

StartReplication = Callable[..., Replication]

#: Held until the master is cut off, under any load.
TTL = LASTING
#: Short, so that a renewal fails long before the lease expires: only then is the master known to be unreachable.
REQUEST_TIMEOUT = 0.3


def isolate(pair: Replication) -> float:
    """Cuts the master off from its replica and promotes the replica. Returns the time of the cut: no renewal that is
    sent later can be acknowledged."""
    pair.links[0].black_hole_all()
    cut = clock.now()
    pair.promote(pair.replicas[0])
    return cut


@APIS
async def test_isolated_master_without_replicas_renews_forever(
    api: Api, start_replication: StartReplication, tmp_path: Path
) -> None:
    pair, losses = start_replication(1), LossReports()
    register = Register(tmp_path, fenced=True)
    async with open_clients(api) as ours:
        old = await ours.acquire(ours.connect(pair.url, ttl=TTL), "job", on_lost=losses)
        await until(lambda: pair.replicas[0].ask("EXISTS", "job"))
        isolate(pair)
        new = await ours.acquire(ours.connect(pair.replicas[0].url, ttl=TTL), "job")
        await until(renewed(new, old))
        assert old.held, "documented: until the partition heals"
        assert new.held
        assert losses.at == []
        assert pair.master.ask("HKEYS", "job") == [old.owner]
        assert pair.replicas[0].ask("HKEYS", "job") == [new.owner]
        assert new.token > old.token
        register.store(new, register.load(new) | {2})
        with pytest.raises(holdfast.StaleToken):
            register.load(old)


@APIS
async def test_lease_with_replicas_ends_within_its_ttl_and_before_the_next_grant(
    api: Api, start_replication: StartReplication
) -> None:
    pair, losses = start_replication(1), LossReports()
    async with open_clients(api) as ours:
        locks = ours.connect(pair.url, ttl=TTL, replicas=1, request_timeout=REQUEST_TIMEOUT)
        old = await ours.acquire(locks, "job", on_lost=losses)
        await until(renewed(old))  # while the replica still acknowledges
        cut = isolate(pair)
        new = await ours.acquire(ours.connect(pair.replicas[0].url, ttl=TTL), "job")
        began = clock.now()
        assert not old.held, "never two holders"
        assert old.lost_reason == "unreachable"
        assert new.token > old.token
        await until(lambda: losses.at)
        assert losses.reasons == ["unreachable"]
        assert losses.at[0] < cut + TTL + SLACK
        assert began < cut + TTL + SLACK, "the replica had at most one ttl"
        assert new.held


@APIS
async def test_lease_ends_one_ttl_after_its_last_acknowledged_renewal(
    api: Api, start_replication: StartReplication
) -> None:
    """Checks the clock alone, without a successor that might be late."""
    pair = start_replication(1)
    async with open_clients(api) as ours:
        locks = ours.connect(pair.url, ttl=TTL, replicas=1, request_timeout=REQUEST_TIMEOUT)
        lease = await ours.acquire(locks, "job")
        cut = isolate(pair)
        now = clock.now()
        while lease.held:
            assert now < cut + TTL
            await asyncio.sleep(0.001)
            now = clock.now()
        assert lease.lost_reason == "unreachable"
        with pytest.raises(holdfast.LockLost, match="unreachable"):
            await ours.do(lease.release)
        await until(lambda: not pair.master.ask("EXISTS", "job"))  # withdrawn at the reachable server


@APIS
async def test_failed_long_renewal_does_not_acknowledge_short_ones(
    api: Api, start_replication: StartReplication
) -> None:
    """The master has the long renewal, so a short one extends nothing. The replica, which lacks it, will take over."""
    pair, ttl = start_replication(1), 1.5 * TTL
    async with open_clients(api) as ours:
        # Repeated: a request that times out at a stalled server never arrives.
        settings = {"ttl": ttl, "request_timeout": REQUEST_TIMEOUT, "unavailable_after": 1.0, "token_ttl": None}
        lease = await ours.acquire(ours.connect(pair.url, replicas=1, **settings), "job")
        cut = isolate(pair)
        with pytest.raises(holdfast.EngineUnavailable, match="could not be renewed"):
            await ours.do(lambda: lease.renew(60.0))
        await until(lambda: pair.master.ask("PTTL", "job") > 50_000)
        assert await ours.do(lambda: lease.lost.wait(cut + ttl + SLACK - clock.now()))
        assert lease.lost_reason == "unreachable"


# ---- "write in any case": replicas acknowledge writes


@pytest.mark.parametrize("api", ["sync", "async"])
def test_earlier_acknowledgements_do_not_count_for_later_renewals(
    api: str, start_replication: StartReplication
) -> None:
    # For WAIT, the pings of the master to its replicas are writes too.
    pair = start_replication(1, "repl-ping-replica-period 3600")

    async def body(session: RedisSession) -> None:
        attempt = make_attempt("job", ttl=60.0, replicas=1)
        await session.acquire(attempt, TIMEOUT)
        assert await session.renew(attempt, 30.0, TIMEOUT) == Found.OURS
        eventually(lambda: is_even(pair.master))
        pair.links[0].black_hole_all()
        # There is nothing to extend, so without the flag nothing is written, and everything written is acknowledged.
        call = encode_renew([("job", attempt.owner)], 30.0, 0, always_write=False)
        assert await session._channel.run_acknowledged(call, 1, TIMEOUT) == ([1], 1)
        with pytest.raises(RequestFailed):
            await session.renew(attempt, 30.0, 0.5)

    # Expiring counters are written with each renewal: without them a renewal may find nothing to write.
    on_api(api, pair.url, body, token_ttl=None)


def is_even(master: RedisServer) -> bool:
    """Whether the replica has acknowledged everything the master ever sent."""
    state = master.ask("INFO", "replication")
    return bool(state["slave0"]["offset"] == state["master_repl_offset"])
