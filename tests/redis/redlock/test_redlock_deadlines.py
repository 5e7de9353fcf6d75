"""No caller waits much longer than its timeout, whatever happens to the servers meanwhile (invariant I10)."""

from __future__ import annotations

import time

import pytest

import holdfast
from holdfast.engines.redis import scripts
from holdfast.testing.conformance.opening import Api
from tests.redis.redlock.support import LONG_TIMEOUT, Proxies, connect_to_all, on
from tests.servers.masters import Masters


async def test_caller_without_a_server_to_wait_at_gets_an_error_in_time(
    five_masters: Masters, proxies: Proxies, api: Api
) -> None:
    """All servers report the lock as held and then become silent. Detecting each silent server takes time before the
    next is tried, but no more than a share of the remaining timeout."""
    async with on(proxies.url, api) as world:
        client, others = world.connect(request_timeout=8.0), world.connect(request_timeout=LONG_TIMEOUT)
        await connect_to_all(world, client)
        lease = await world.do(others.lock("it").acquire)
        for proxy in proxies:
            proxy.on(script=scripts.ENQUEUE).drop_request_black_hole()
        began = time.monotonic()
        with pytest.raises(holdfast.LockError):
            await world.do(lambda: client.lock("it").acquire(timeout=1.0))
        assert 1.0 <= time.monotonic() - began < 3.0, "neither eight seconds nor five times a share of them"
        await world.do(lease.release)
