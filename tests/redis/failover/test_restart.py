"""A master that is killed and comes back by itself: faults R14, R15."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast.testing.conformance.opening import Api
from holdfast.testing.conformance.world import ends
from tests.servers.redis import RedisServer
from tests.support.clients import APIS, SLACK, LossReports, open_clients
from tests.support.waiting import until

StartRedis = Callable[..., RedisServer]

#: Long: neither the outage nor a slow start of the server ends the lease.
TTL = 4.5


@APIS
async def test_R14_lease_lost_in_a_restart_is_reported_and_never_recreated(api: Api, start_redis: StartRedis) -> None:
    server, losses = start_redis(), LossReports()
    async with open_clients(api) as ours:
        locks = ours.connect(server.url, ttl=TTL)
        lease = await ours.acquire(locks, "job", on_lost=losses)
        await ours.do(lease.renew)
        server.kill()
        server.restart()
        restarted = clock.now()
        await until(lambda: losses.at)
        assert losses.reasons == ["broken"]
        assert losses.at[0] - restarted < TTL / 3 + SLACK, "by the next renewal, not at the end of the lease"
        assert not lease.held
        with pytest.raises(holdfast.LockLost, match="broken"):
            await ours.do(lease.release)
        assert server.ask("INFO", "commandstats").get("cmdstat_hset") is None, "no lock was written since"
        again = await ours.acquire(locks, "job")
        assert again.token > lease.token


@APIS
async def test_R15_lease_survives_a_restart_with_an_append_only_file(api: Api, start_redis: StartRedis) -> None:
    server, losses = start_redis("appendonly yes", "appendfsync everysec"), LossReports()
    async with open_clients(api) as ours:
        locks = ours.connect(server.url, ttl=TTL)
        lease = await ours.acquire(locks, "job", on_lost=losses)
        server.kill()
        server.restart()
        assert server.ask("HKEYS", "job") == [lease.owner]
        before = ends(lease)
        await ours.do(lease.renew)
        assert ends(lease) > before
        assert server.ask("PTTL", "job") / 1000 > lease.remaining, "the server has the renewal, too"
        assert (await ours.do(lambda: locks.inspect("job"))).token == lease.token
        await ours.do(lease.release)
        assert losses.at == []
        assert server.ask("EXISTS", "job") == 0
        assert (await ours.acquire(locks, "job")).token > lease.token
