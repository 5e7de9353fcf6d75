"""A server ends a sharded subscription at any moment when the slot moves away."""

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


async def test_slot_move_during_unsubscribe_keeps_replies_in_order(cluster: RedisCluster) -> None:
    """The push is in flight when SUNSUBSCRIBE is sent, which is then answered by an error. Neither may be taken for the
    reply to the next request: from then on each request would get the reply of its predecessor."""
    channel_name = "redisson_lock__channel:{job}"
    source, target = cluster.master_of("job"), elsewhere(cluster, "job")
    channel = AsyncioChannel(from_url(source.url, {}))
    pipe = await channel.open(TIMEOUT)
    await pipe.ask([("SSUBSCRIBE", channel_name)], TIMEOUT)
    operator: Any = source.client().connection_pool.get_connection()
    new_owner, before = target.node_id, errors(source, "MOVED")
    target.cluster("SETSLOT", slot_of("job"), "NODE", new_owner)
    source.pause()  # so that both requests are waiting when it resumes, that of the operator first
    operator.send_command("CLUSTER", "SETSLOT", slot_of("job"), "NODE", new_owner)
    pipe.unsubscribe(pack(("SUNSUBSCRIBE", channel_name)), TIMEOUT)
    answers = [pipe.send(pack(("ECHO", str(number))), TIMEOUT) for number in range(3)]
    pipe._flush()
    source.resume()
    try:
        assert [await answer for answer in answers] == [b"0", b"1", b"2"]
        assert errors(source, "MOVED") == before + 1, "the move had no effect"
    finally:
        operator.disconnect()
        await channel.close()


@pytest.mark.usefixtures("hurried")
@APIS
def test_slot_that_moved_away_and_back_is_subscribed_again(api: str, cluster: RedisCluster) -> None:
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
