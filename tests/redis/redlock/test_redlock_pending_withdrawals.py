"""Pending withdrawals of the watchdog: servers missed by a release are freed, also while one server of five is dead."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable

import pytest

import holdfast
from holdfast.engines.redis import scripts
from holdfast.testing.conformance.opening import Api
from holdfast.testing.faults import Rule
from holdfast.testing.proxy import FaultProxy
from tests.redis.redlock.support import LONG_TIMEOUT, REPAIR_TIME, Proxies, connect_to_all, on, owners
from tests.servers.masters import Masters
from tests.support.waiting import eventually


def test_withdrawal_that_cannot_complete_does_not_delay_others(start_masters: Callable[[int], Masters]) -> None:
    masters = start_masters(5)
    with holdfast.connect(masters.url, ttl=60) as locks, holdfast.connect(masters.url) as others:
        leases = [locks.lock(f"n{number}").acquire() for number in range(6)]
        masters.servers[4].kill()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            leases.clear()  # dropped: the watchdog withdraws them all
            gc.collect()
        for number in range(6):
            others.lock(f"n{number}").acquire(timeout=20).release()  # well before 60 s


def request_lost_by_reset(proxy: FaultProxy) -> Rule:
    return proxy.on(script=scripts.RELEASE).drop_request_and_reset()


def request_lost_in_a_black_hole(proxy: FaultProxy) -> Rule:
    return proxy.on(script=scripts.RELEASE).drop_request_black_hole()


@pytest.mark.parametrize("lose", [request_lost_by_reset, request_lost_in_a_black_hole])
async def test_server_missed_by_a_release_is_freed_before_the_ttl(
    five_masters: Masters, proxies: Proxies, api: Api, lose: Callable[[FaultProxy], Rule]
) -> None:
    """The release misses the server with the queue. While that server has the lock, no release wakes its waiters."""
    async with on(proxies.url, api) as world:
        client = world.connect(ttl=60, request_timeout=4.0)
        await connect_to_all(world, client)
        lease = await world.do(client.lock("it").acquire)
        missed = lose(proxies[0])
        await world.do(lease.release)
        assert missed.fired
        await world.until(lambda: owners(five_masters, "it") == [None] * 5, within=REPAIR_TIME)


def test_withdrawal_is_retried_for_the_longest_renewed_ttl(five_masters: Masters, proxies: Proxies) -> None:
    """Not only for the ttl of the acquire: the server would keep the lock for the remaining time."""
    ttl = 1.2
    with holdfast.connect(proxies.url, ttl=ttl) as locks:
        lease = locks.lock("it").acquire()
        lease.renew(ttl=60)
        away = proxies[0].on(script=scripts.RELEASE, times=None).drop_request_and_reset()
        lease.release()
        released = time.monotonic()
        eventually(lambda: time.monotonic() > released + 1.2 * ttl)
        away.cancel()
        eventually(lambda: owners(five_masters, "it") == [None] * 5, within=REPAIR_TIME)


def test_server_that_has_answered_is_not_asked_again(five_masters: Masters, proxies: Proxies) -> None:
    with holdfast.connect(proxies.url, ttl=60, request_timeout=LONG_TIMEOUT) as locks:
        lease = locks.lock("it").acquire()
        away = proxies[4].on(script=scripts.RELEASE, times=None).drop_request_and_reset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del lease
            gc.collect()
        eventually(lambda: len(away.hits) >= 3, within=REPAIR_TIME)
        for proxy in proxies[:4]:
            assert sum(scripts.RELEASE.sha.encode() in words for words in proxy.seen) == 1
        away.cancel()
