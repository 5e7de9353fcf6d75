"""A hold older than a tenth of a second is watched: its loss is pushed long before the first renewal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import pytest

import holdfast
from tests.redis.support import calls
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer
from tests.servers.sentinel import SentinelSet
from tests.support.waiting import eventually, until

#: The first renewal is after ten seconds at the earliest: a loss known by ``SOON`` was pushed.
TTL: Final = 30.0
SOON: Final = 3.0

#: Ways to take the lock ``job`` away, as another client of the server at this URL.
Taker = Callable[[RedisServer, str], Any]

FORCE_UNLOCK: Final = """
if redis.call('del', KEYS[1]) == 1 then redis.call('publish', KEYS[2], ARGV[1]); return 1 else return 0 end
"""


def _break(server: RedisServer, url: str) -> None:
    with holdfast.connect(url) as other:
        assert other.break_("job")


TAKERS: Final[dict[str, Taker]] = {
    "break": _break,
    "del": lambda server, url: server.ask("DEL", "job"),
    "flushall": lambda server, url: server.ask("FLUSHALL"),
    "forceUnlock": lambda server, url: server.ask(
        "EVAL", FORCE_UNLOCK, 2, "job", "redisson_lock__channel:{job}", "0"
    ),
}  # fmt: skip


def watched(server: RedisServer) -> Callable[[], bool]:
    return lambda: server.ask("INFO", "stats")["tracking_total_keys"] >= 1


def lost_soon(server: RedisServer, url: str, take: Taker) -> None:
    with holdfast.connect(url, ttl=TTL) as locks:
        lease = locks.lock("job").acquire()
        eventually(watched(server))
        take(server, url)
        assert lease.lost.wait(SOON)
        assert lease.lost_reason == "broken"


async def lost_soon_async(server: RedisServer, url: str, take: Taker) -> None:
    async with holdfast.aio.connect(url, ttl=TTL) as locks:
        lease = await locks.lock("job").acquire()
        await until(watched(server))
        take(server, url)
        assert await lease.lost.wait(SOON)
        assert lease.lost_reason == "broken"


@pytest.mark.parametrize("how", TAKERS)
def test_loss_before_the_first_renewal_is_pushed(how: str, redis_server: RedisServer) -> None:
    lost_soon(redis_server, redis_server.url, TAKERS[how])


@pytest.mark.parametrize("how", TAKERS)
async def test_loss_before_the_first_renewal_is_pushed_async(how: str, redis_server: RedisServer) -> None:
    await lost_soon_async(redis_server, redis_server.url, TAKERS[how])


def test_loss_before_the_first_renewal_is_pushed_behind_sentinels(sentinel_set: SentinelSet) -> None:
    lost_soon(sentinel_set.master(), sentinel_set.url, _break)


async def test_loss_before_the_first_renewal_is_pushed_behind_sentinels_async(sentinel_set: SentinelSet) -> None:
    await lost_soon_async(sentinel_set.master(), sentinel_set.url, TAKERS["del"])


@pytest.mark.parametrize("how", ["break", "del", "flushall"])
def test_loss_before_the_first_renewal_is_pushed_in_a_cluster(how: str, redis_cluster: RedisCluster) -> None:
    lost_soon(redis_cluster.master_of("job"), redis_cluster.url, TAKERS[how])


async def test_loss_before_the_first_renewal_is_pushed_in_a_cluster_async(redis_cluster: RedisCluster) -> None:
    await lost_soon_async(redis_cluster.master_of("job"), redis_cluster.url, _break)


def test_lock_taken_over_before_it_is_watched_is_reported_as_stolen(redis_server: RedisServer) -> None:
    with holdfast.connect(redis_server.url, ttl=TTL) as locks, holdfast.connect(redis_server.url) as other:
        lease = locks.lock("job").acquire()
        redis_server.client().delete("job")
        theirs = other.lock("job").acquire()
        assert lease.lost.wait(SOON)
        assert lease.lost_reason in ("stolen", "broken")  # broken, if the scheduler stalled before it was taken over
        assert theirs.held
        theirs.release()


def test_short_hold_costs_no_extra_command_and_longer_hold_one(redis_server: RedisServer) -> None:
    with holdfast.connect(redis_server.url, ttl=TTL) as locks:
        with locks.lock("warm"):
            eventually(watched(redis_server))  # the watchdog is connected
        redis_server.client().config_resetstat()
        long = 0
        for number in range(300):
            began = time.monotonic()
            with locks.lock(f"job-{number % 3}"):
                pass
            long += time.monotonic() - began >= 0.09
        assert calls(redis_server).get("hexists", 0) <= long
        assert set(calls(redis_server)) <= {"del", "evalsha", "eval", "exists", "get", "hdel", "hexists", "hset",
                                            "lpop", "pexpire", "publish", "set", "time", "pttl"}  # fmt: skip
        redis_server.client().config_resetstat()
        leases = [locks.lock(f"long-{number}").acquire() for number in range(3)]
        eventually(lambda: redis_server.ask("INFO", "stats")["tracking_total_keys"] >= 3)
        assert calls(redis_server)["hexists"] == 3
        for lease in leases:
            lease.release()


def test_end_of_an_earlier_hold_is_no_hint_for_the_next(redis_server: RedisServer) -> None:
    """Released after it was watched: the push is about that hold and costs the next one no request."""
    with holdfast.connect(redis_server.url, ttl=TTL) as locks:
        for _ in range(3):
            with locks.lock("job"):
                eventually(watched(redis_server))
            eventually(lambda: not watched(redis_server)())
        redis_server.client().config_resetstat()
        lease = locks.lock("job").acquire()
        eventually(watched(redis_server))
        assert calls(redis_server)["hexists"] == 1
        assert calls(redis_server)["evalsha"] == 1
        lease.release()
