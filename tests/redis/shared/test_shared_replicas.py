"""Read-write locks and semaphores on a master found by sentinels, and with replicas that must acknowledge."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.engines.base import READ, WRITE, Busy, Found, Granted, Mode, RequestFailed, permits
from holdfast.engines.redis.session import RedisSession
from tests.redis.sentinel_support import engine_for
from tests.redis.support import TIMEOUT, keeper_of, make_attempt, on, on_api
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication
from tests.servers.sentinel import Sentinel
from tests.support.clients import APIS

pytestmark = pytest.mark.needs_redis


@APIS
def test_both_kinds_are_served_by_the_master_that_sentinels_name(
    api: str, pair: Replication, start_sentinel: Callable[..., Sentinel]
) -> None:
    async def body(session: RedisSession) -> None:
        reader, writer = make_attempt("job", mode=READ, replicas=1), make_attempt("job", mode=WRITE)
        permit = make_attempt("sem", mode=permits(2, 3), replicas=1)
        for holder in (reader, permit):
            assert isinstance(await session.acquire(holder, TIMEOUT), Granted)
        assert isinstance(await session.acquire(writer, TIMEOUT), Busy)
        assert await keeper_of(session).renew([reader, permit], 60.0, TIMEOUT) == [Found.OURS, Found.OURS]
        assert (await session.inspect("sem", TIMEOUT)).free == 1
        for holder in (reader, permit):
            assert await session.release(holder, TIMEOUT) is Found.OURS
        assert isinstance(await session.acquire(writer, TIMEOUT), Granted)
        assert pair.master.ask("HEXISTS", "job", f"{writer.owner}:write") == 1

    on(engine_for(start_sentinel(pair.master)), api, body)


@pytest.mark.parametrize("mode", [READ, permits(2, 3)], ids=lambda mode: mode.label)
def test_grant_that_no_replica_has_acknowledged_is_taken_back(mode: Mode, redis_server: RedisServer) -> None:
    async def body(session: RedisSession) -> None:
        attempt = make_attempt("job", mode=mode, replicas=1)
        first = attempt.owner
        with pytest.raises(RequestFailed, match="only 0 of 1 replicas") as failure:
            await session.acquire(attempt, 1.0)
        assert not failure.value.may_have_happened
        assert attempt.owner != first, "it goes on under an owner without a tombstone"
        assert (await session.inspect("job", TIMEOUT)).holders == ()

    on_api("async", redis_server.url, body)
