"""``replicas=n``: where it can be set, which requests wait, and the cost of a dead replica for other leases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import Found, RequestFailed
from holdfast.engines.redis.dialect.replication import wait_for_replicas
from holdfast.testing.conformance.opening import Api
from holdfast.testing.proxy import FaultProxy
from tests.redis.support import Other
from tests.redis.wait_command import end_waits, in_wait, with_short_waits
from tests.servers.replication import Replication
from tests.support.clients import APIS, LONG_TIMEOUT, SLACK, open_clients
from tests.support.waiting import eventually, renewed, until

StartReplication = Callable[..., Replication]

#: The ttl of leases without replicas. Another lease may wait for a replica for a third of it, plus a second.
TTL = 3.0
#: How late a server may answer WAIT: it checks its clock ten times a second.
LATENESS = 0.1


@pytest.fixture
def dark(start_replication: StartReplication) -> Replication:
    """A master whose only replica is cut off."""
    pair = start_replication(1)
    pair.links[0].black_hole_all()
    return pair


# ---- where it can be set


@APIS
async def test_replicas_can_be_set_in_the_url_the_client_and_the_lock(api: Api, dark: Replication) -> None:
    wanted: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("?replicas=1", {}, {}),
        ("", {"replicas": 1}, {}),
        ("", {}, {"replicas": 1}),
    ]
    async with open_clients(api) as ours:
        calls = []
        for place, (query, options, policy) in enumerate(wanted):
            locks = ours.connect(dark.url + query, request_timeout=0.25, **options)
            assert await ours.acquire(locks, f"mine-{place}", replicas=0), "the setting of the lock takes precedence"
            calls.append(ours.caller().do(locks.lock(f"job-{place}", **policy).try_acquire))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(outcome, holdfast.EngineUnavailable) for outcome in outcomes] == [True] * 3, outcomes
        assert await ours.acquire(ours.connect(dark.url), "job-0")


@APIS
@pytest.mark.parametrize("url", ["memory:", "sqlite:{}/locks.db", "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"])
async def test_replicas_option_is_refused_by_engines_without_replicas(api: Api, url: str, tmp_path: Any) -> None:
    async with open_clients(api) as ours:
        with pytest.raises(holdfast.UsageError, match="no replicas to wait for"):
            ours.connect(url.format(tmp_path)).lock("job", replicas=1)
        with pytest.raises(holdfast.UsageError, match="no replicas to wait for"):
            ours.connect(url.format(tmp_path), replicas=1).lock("job")


@APIS
async def test_re_entry_needs_the_same_number_of_replicas(api: Api, start_replication: StartReplication) -> None:
    async with open_clients(api) as ours:
        locks = ours.connect(start_replication(1).url)
        lease = await ours.acquire(locks, "job", replicas=1)
        assert (await ours.acquire(locks, "job", replicas=1)).token == lease.token
        with pytest.raises(holdfast.UsageError, match="replicas"):
            await ours.acquire(locks, "job", replicas=0)


@APIS
@pytest.mark.parametrize("asked", [(0, 0), (0, 1)], ids=str)
async def test_grant_is_inherited_only_by_waiters_with_as_many_replicas(
    api: Api, asked: tuple[int, int], start_replication: StartReplication
) -> None:
    pair = start_replication(1)
    async with open_clients(api) as ours:
        locks = ours.connect(pair.url)
        blocker = await ours.acquire(locks, "job")
        holds = []
        for place in range(8):
            lock = locks.lock("job", replicas=asked[place % 2])
            holds.append(ours.caller().within(lock, lambda lease: (lease.owner, lease.token)))
            await until(lambda: waiting(locks) == len(holds))
        await ours.do(blocker.release)
        owners, tokens = zip(*await asyncio.gather(*holds), strict=True)
        assert list(tokens) == sorted(set(tokens))
        # An inherited grant keeps the owner known to the engine.
        assert (len(set(owners)) < 8) is (asked[0] == asked[1])


def waiting(locks: Any) -> int:
    """Returns the number of callers queued for the job inside this process."""
    count: int = locks._opened.queue.waiting("job")
    return count


# ---- a dead replica


@APIS
async def test_single_try_is_refused_in_bounded_time_with_a_known_outcome(api: Api, dark: Replication) -> None:
    async with open_clients(api) as ours:
        locks = ours.connect(dark.url, replicas=1, request_timeout=1.0, unavailable_after=60.0)
        began = clock.now()
        with pytest.raises(holdfast.EngineUnavailable, match="0 of 1 replicas") as refused:
            await with_short_waits(ours.caller().do(locks.lock("job").try_acquire), dark.master)
        # Two requests are allowed; the last one may begin just before the deadline.
        assert clock.now() - began < 3.0 + SLACK
        assert not isinstance(refused.value, holdfast.OutcomeUnknown)
        assert dark.master.ask("EXISTS", "job") == 0


@APIS
async def test_release_does_not_wait_for_replicas(api: Api, start_replication: StartReplication) -> None:
    pair = start_replication(1)
    async with open_clients(api) as ours:
        lease = await ours.acquire(ours.connect(pair.url, replicas=1, request_timeout=LONG_TIMEOUT), "job")
        pair.links[0].black_hole_all()
        began = clock.now()
        await ours.do(lease.release)
        assert clock.now() - began < SLACK
        assert pair.master.ask("EXISTS", "job") == 0


@pytest.mark.parametrize("ttl", [TTL, 1.5 * TTL])
async def test_renewals_without_replicas_are_neither_late_nor_failed(
    ttl: float, start_replication: StartReplication
) -> None:
    """One watchdog renews all leases. Those with replicas may have a longer ttl, and so more time to wait."""
    pair = start_replication(1)
    with FaultProxy(pair.master.host, pair.master.port) as proxy:
        async with open_clients("sync") as ours:
            locks = ours.connect(proxy.url, ttl=TTL, request_timeout=LONG_TIMEOUT)
            plain = [await ours.acquire(locks, f"plain-{number}") for number in range(3)]
            careful = await ours.acquire(locks, "careful", replicas=1, ttl=ttl)
            proxy.seen.clear()
            pair.links[0].black_hole_all()
            assert await ours.do(lambda: careful.lost.wait(ttl + SLACK))
            assert careful.lost_reason == "unreachable"
            waits = [int(words[2]) / 1000 for words in proxy.seen if words[0] == b"WAIT"]
            assert 0 < max(waits) < TTL / 3, "longer than the shortest lease allows"
            await until(renewed(plain[0]))
            assert [lease.held for lease in plain] == [True] * 3


@pytest.mark.parametrize("timeout", [0.25, 0.5, 1.0, 5.0])
def test_late_wait_answer_still_arrives_within_the_timeout(timeout: float) -> None:
    *_, milliseconds = wait_for_replicas(1, timeout).split()
    assert 0 < int(milliseconds) / 1000 < timeout - LATENESS


def test_batch_renews_leases_without_replicas_first(dark: Replication) -> None:
    with Other(dark.url) as other:
        plain, careful = other.hold("plain"), other.hold("careful")
        careful.claim = careful.claim._replace(replicas=1)
        with ThreadPoolExecutor(1) as pool:
            renewal = pool.submit(lambda: run(other.keeper.renew([careful, plain], 60.0, LONG_TIMEOUT)))
            eventually(lambda: dark.master.ask("PTTL", "plain") > 30_000)
            assert not renewal.done()
            eventually(lambda: in_wait(dark.master))
            end_waits(dark.master)
            failure, found = renewal.result()
        assert isinstance(failure, RequestFailed)
        assert found is Found.OURS


async def test_wait_for_a_replica_does_not_delay_other_tasks(dark: Replication) -> None:
    async with holdfast.aio.connect(dark.url, unavailable_after=0.5, request_timeout=LONG_TIMEOUT) as locks:
        await locks.ping()
        slow = asyncio.create_task(locks.lock("slow", replicas=1).try_acquire())
        await until(lambda: in_wait(dark.master))

        async def pair_of_calls(number: int) -> float:
            began = clock.now()
            async with locks.lock(f"quick-{number}"):
                pass
            return clock.now() - began

        times = await asyncio.gather(*(pair_of_calls(number) for number in range(50)))
        assert not slow.done(), "all of them were served while it waited"
        assert max(times) < SLACK
        with pytest.raises(holdfast.EngineUnavailable):
            await with_short_waits(slow, dark.master)


# ---- rights


@APIS
async def test_acquire_without_the_right_to_wait_is_refused_and_leaves_no_lock(
    api: Api, start_replication: StartReplication
) -> None:
    pair = start_replication(1)
    pair.master.ask("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-wait")
    async with open_clients(api) as ours:
        locks = ours.connect(pair.master.url_as("app", "pw"))
        with pytest.raises(holdfast.EngineRefused, match="'wait' command"):
            await ours.acquire(locks, "job", replicas=1)
        await until(lambda: not pair.master.ask("EXISTS", "job"))
        assert await ours.acquire(locks, "job", timeout=0, replicas=0), "a lock without WAIT is granted"
