"""A server ends a sharded subscription by itself when the slot moves away, at any moment."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast._runtime import clock
from holdfast.engines.redis.cluster.session import ClusterSession
from holdfast.engines.redis.connections.aio import AsyncioChannel
from holdfast.engines.redis.connections.settings import from_url
from holdfast.engines.redis.dialect.packing import pack
from tests.redis.cluster.support import NO_TRACKING, elsewhere, errors, move, on, slot_of, subscribers, user
from tests.redis.support import TIMEOUT, make_attempt
from tests.servers.cluster import RedisCluster
from tests.support.clients import APIS

pytestmark = pytest.mark.needs_redis


async def test_the_slot_moves_away_while_we_unsubscribe(cluster: RedisCluster) -> None:
    """The push is on its way when SUNSUBSCRIBE is sent; that is then answered by an error. Neither may be taken for the
    answer to the next request: from then on, each would be given the answer of the one before."""
    channel_name = "redisson_lock__channel:{job}"
    source, target = cluster.master_of("job"), elsewhere(cluster, "job")
    channel = AsyncioChannel(from_url(source.url, {}))
    pipe = await channel.open(TIMEOUT)
    await pipe.ask([("SSUBSCRIBE", channel_name)], TIMEOUT)
    operator: Any = source.client().connection_pool.get_connection()
    new_owner, before = target.node_id, errors(source, "MOVED")
    target.cluster("SETSLOT", slot_of("job"), "NODE", new_owner)
    source.pause()  # so that it finds both requests waiting, the operator's first
    operator.send_command("CLUSTER", "SETSLOT", slot_of("job"), "NODE", new_owner)
    pipe.unsubscribe(pack(("SUNSUBSCRIBE", channel_name)), TIMEOUT)
    answers = [pipe.send(pack(("ECHO", str(number))), TIMEOUT) for number in range(3)]
    pipe._flush()
    source.resume()
    try:
        assert [await answer for answer in answers] == [b"0", b"1", b"2"]
        assert errors(source, "MOVED") == before + 1, "or nothing was shown"
    finally:
        operator.disconnect()
        await channel.close()


@APIS
def test_a_slot_that_went_and_came_back_is_subscribed_to_again(api: str, cluster: RedisCluster) -> None:
    source = cluster.master_of("job")

    async def body(session: ClusterSession) -> None:
        await session.acquire(make_attempt("job"), TIMEOUT)
        contender = session.contender(make_attempt("job"), TIMEOUT)
        await contender.wait(clock.now() + 0.01)
        assert subscribers(source) == 1
        move(cluster, "job")
        move(cluster, "job", source)
        assert subscribers(source) == 0
        try:
            for _ in range(3):
                await contender.wait(clock.now() + 0.01)
            assert subscribers(source) == 1
        finally:
            await contender.leave()

    with user(cluster, *NO_TRACKING) as url:
        on(url, api, body)
