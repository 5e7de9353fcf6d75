"""Many tasks of one client that need a connection at once, to a server that takes its time."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections import aio, handshake
from holdfast.engines.redis.connections.settings import from_url
from tests.redis.support import TIMEOUT
from tests.servers.redis import RedisServer

CALLERS: Final = 100
#: Seconds.
PATIENCE: Final = 1.0


async def test_those_whose_time_is_nearly_over_do_not_each_begin_a_hopeless_attempt(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of a cluster with hundreds of callers never came to life again after the machine had stood still: all
    waited for one attempt. When its time was over, the next caller began another one, with the instant that it had come
    later; all woke for that one's failure, and so on. That kept the loop so busy that no attempt was ever in time."""
    attempts: list[float] = []
    connect = handshake.open_transport

    async def black_hole_at_first(settings: Any, timeout: float) -> Any:
        attempts.append(timeout)
        if len(attempts) == 1:
            await asyncio.sleep(timeout)
            raise RequestFailed("no answer in time", may_have_happened=False)
        return await connect(settings, timeout)

    monkeypatch.setattr(aio, "open_transport", black_hole_at_first)
    channel = aio.AsyncioChannel(from_url(redis_server.url, {}))

    async def call(number: int) -> None:
        # Each has a little more time than the one before, as if it had come a little later.
        await channel.open(PATIENCE * (1 + 3 * number / CALLERS))

    results = await asyncio.gather(*map(call, range(CALLERS)), return_exceptions=True)
    # Time in which the loop was busy does not count: on a slow machine the first one may have some left.
    assert results[0] is None or isinstance(results[0], RequestFailed)
    assert results[-1] is None
    assert len(attempts) == 2
    assert attempts[1] > PATIENCE, "the time of who waits longest"
    await channel.close()


async def test_who_has_no_time_left_does_not_cost_the_others_their_connection(redis_server: RedisServer) -> None:
    """A request without an answer in time resets the connection, with all that others wait for."""
    channel = aio.AsyncioChannel(from_url(redis_server.url, {}))
    pipe = await channel.open(TIMEOUT)
    with pytest.raises(RequestFailed, match="too late") as failed:
        await channel.command(("PING",), 0.001)
    assert not failed.value.may_have_happened
    assert not pipe.lost
    await channel.close()
