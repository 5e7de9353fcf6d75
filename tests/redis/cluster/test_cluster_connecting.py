"""Many tasks of one client need a connection to a slow server at the same time."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections import aio, handshake
from holdfast.engines.redis.connections.aio_timeouts import within
from holdfast.engines.redis.connections.settings import from_url
from tests.redis.support import TIMEOUT
from tests.servers.redis import RedisServer

CALLERS: Final = 100
#: The shortest timeout of a caller, in seconds.
SHORTEST_TIMEOUT: Final = 1.0


async def test_callers_near_their_timeout_do_not_each_start_a_futile_connect(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: after a scheduler stall a cluster client with hundreds of callers never recovered. All waited for one
    attempt to connect. When it timed out, the next caller began another one with only its own remaining instant; all
    woke for that failure, and so on. The loop was then so busy that no attempt succeeded in time."""
    attempts: list[float] = []
    connect = handshake.open_transport

    async def black_hole_at_first(settings: Any, timeout: float) -> Any:
        attempts.append(timeout)
        if len(attempts) == 1:
            try:
                async with within(timeout):  # as a real attempt: a stall of the machine does not count
                    await asyncio.sleep(60)
            except TimeoutError:
                raise RequestFailed("no answer in time", may_have_happened=False) from None
        return await connect(settings, timeout)

    monkeypatch.setattr(aio, "open_transport", black_hole_at_first)
    channel = aio.AsyncioChannel(from_url(redis_server.url, {}))

    async def call(number: int) -> None:
        # Each caller has slightly more time than its predecessor, as if it had started slightly later.
        await channel.open(SHORTEST_TIMEOUT * (1 + 3 * number / CALLERS))

    results = await asyncio.gather(*map(call, range(CALLERS)), return_exceptions=True)
    # Time in which the loop was busy does not count: on a slow machine the first caller may have some left.
    assert results[0] is None or isinstance(results[0], RequestFailed)
    assert results[-1] is None
    assert len(attempts) == 2
    assert attempts[1] > SHORTEST_TIMEOUT, "the timeout of the caller that waits longest"
    await channel.close()


async def test_caller_without_time_left_does_not_reset_the_shared_connection(redis_server: RedisServer) -> None:
    """A request that times out resets the connection together with all pending requests of other callers."""
    channel = aio.AsyncioChannel(from_url(redis_server.url, {}))
    pipe = await channel.open(TIMEOUT)
    with pytest.raises(RequestFailed, match="too late") as failed:
        await channel.command(("PING",), 0.001)
    assert not failed.value.may_have_happened
    assert not pipe.lost
    await channel.close()
