"""Requests follow their slots: MOVED, ASK, TRYAGAIN and CLUSTERDOWN, with the same claim (faults D6, D7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import redis

import holdfast
from holdfast._runtime import clock
from holdfast.engines.base import Found, Granted, RequestFailed
from holdfast.engines.redis.cluster.session import ClusterSession
from holdfast.engines.redis.dialect import grants
from holdfast.engines.redis.dialect.keys import keys_of, prefixed
from holdfast.engines.redis.dialect.replies import TryAgain
from holdfast.engines.redis.scripts import ACQUIRE, ACQUIRE_OR_JOIN, RELEASE, Script
from holdfast.testing.conformance.opening import Api
from tests.redis.cluster.support import SLACK, errors, half_moved, keys, move, on, slot_of
from tests.redis.support import TIMEOUT, make_attempt
from tests.servers.cluster import RedisCluster
from tests.support.clients import APIS, open_clients
from tests.support.waiting import until

pytestmark = pytest.mark.needs_redis


@APIS
def test_moved_slot_is_followed_with_the_same_claim(api: str, cluster: RedisCluster) -> None:
    async def body(session: ClusterSession) -> None:
        await session.ping(TIMEOUT)  # loads the table before the move
        source, attempt = cluster.master_of("job"), make_attempt("job")
        target = move(cluster, "job")
        before = errors(source, "MOVED")
        granted = await session.acquire(attempt, TIMEOUT)
        assert isinstance(granted, Granted)
        assert errors(source, "MOVED") == before + 1
        assert target.ask("HGETALL", "job") == {attempt.owner: "1"}
        assert target.ask("GET", keys_of("job").token) == str(granted.token), "one grant, one token"
        assert await session.release(attempt, TIMEOUT) is Found.OURS
        assert errors(source, "MOVED") == before + 1, "the new place is remembered"

    on(cluster.url, api, body)
    assert keys(*cluster.masters()) == set()


@APIS
def test_held_lock_moves_with_its_slot(api: str, cluster: RedisCluster) -> None:
    async def body(session: ClusterSession) -> None:
        attempt, other = make_attempt("job"), make_attempt("job")
        granted = await session.acquire(attempt, TIMEOUT)
        assert isinstance(granted, Granted)
        for _ in range(2):  # there and back
            move(cluster, "job")
            assert await session.renew(attempt, 60.0, TIMEOUT) == Found.OURS
            move(cluster, "job")
            assert not isinstance(await session.acquire(other, TIMEOUT), Granted)
            move(cluster, "job")
            state = await session.inspect("job", TIMEOUT)
            assert [holder.owner for holder in state.holders] == [attempt.owner]
            assert state.token == granted.token
        move(cluster, "job")
        assert await session.release(attempt, TIMEOUT) is Found.OURS

    on(cluster.url, api, body)
    assert keys(*cluster.masters()) == set()


@APIS
def test_keys_that_moved_before_their_slot_are_found_by_ask(api: str, cluster: RedisCluster) -> None:
    async def body(session: ClusterSession) -> None:
        attempt = make_attempt("job")
        await session.acquire(attempt, TIMEOUT)
        with half_moved(cluster, "job") as slot:
            slot.carry_all()
            before = errors(slot.source, "ASK")
            assert await session.renew(attempt, 60.0, TIMEOUT) == Found.OURS
            assert [name async for name in session.names("", TIMEOUT)] == ["job"]
            assert await session.break_("job", TIMEOUT)
            assert errors(slot.source, "ASK") >= before + 3
            assert errors(slot.source, "MOVED") == errors(slot.target, "MOVED") == 0, "the table is unchanged"
            assert keys(slot.source, slot.target) == set()

    for node in cluster.nodes:
        node.ask("CONFIG", "RESETSTAT")
    on(cluster.url, api, body)


@pytest.mark.parametrize(
    "script, names",
    [
        (ACQUIRE, keys_of("job").acquire),
        (ACQUIRE_OR_JOIN, grants.joining_keys("job")),
        (RELEASE, keys_of("job").release),
    ],
)
def test_server_runs_no_script_unless_all_keys_are_present(
    script: Script, names: Sequence[str], cluster: RedisCluster
) -> None:
    """The design relies on this behaviour of Redis 7.0: some keys missing, TRYAGAIN on both sides; all missing at the
    source, ASK. Acquire and release name a key that never exists, so neither runs while its slot is between servers."""
    never = prefixed("holdfast_lock", "job")
    there = set(names) - {never}
    assert never in names
    for key in there:
        cluster.master_of("job").ask("SET", key, "1")
    call: tuple[str | int, ...] = (script.source, len(names), *names, "me:1")
    with half_moved(cluster, "job") as slot:
        target: Any = slot.target.client(single_connection_client=True)
        with pytest.raises(redis.exceptions.TryAgainError):
            slot.source.ask("EVAL", *call)
        slot.carry(*there)
        with pytest.raises(redis.exceptions.AskError):
            slot.source.ask("EVAL", *call)
        target.execute_command("ASKING")
        with pytest.raises(redis.exceptions.TryAgainError):
            target.execute_command("EVAL", *call)


@APIS
def test_half_moved_slot_grants_nothing(api: str, cluster: RedisCluster) -> None:
    async def body(session: ClusterSession) -> None:
        attempt = make_attempt("job")
        with half_moved(cluster, "job") as slot:
            for _ in range(3):
                with pytest.raises(TryAgain) as refused:
                    await session.acquire(attempt, TIMEOUT)
                assert not refused.value.may_have_happened
            assert keys(slot.source, slot.target) == set()
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)

    on(cluster.url, api, body)


@APIS
async def test_acquire_waits_until_the_slot_has_arrived(api: Api, cluster: RedisCluster) -> None:
    async with open_clients(api) as ours:
        locks = ours.connect(cluster.url, unavailable_after=10.0)
        with half_moved(cluster, "job") as slot:
            waiting = ours.caller().do(lambda: locks.lock("job").acquire(timeout=10.0))
            before = errors(slot.target, "TRYAGAIN")
            await until(lambda: errors(slot.target, "TRYAGAIN") >= before + 2)
            slot.finish()
            lease = await waiting
            assert slot.target.ask("HKEYS", "job") == [lease.owner]
            assert slot.target.ask("GET", keys_of("job").token) == str(lease.token)
            await ours.do(lease.release)


@APIS
async def test_slot_that_does_not_arrive_is_unavailable(api: Api, cluster: RedisCluster) -> None:
    async with open_clients(api) as ours:
        locks = ours.connect(cluster.url, unavailable_after=0.3)
        with half_moved(cluster, "job") as slot:
            began = clock.now()
            with pytest.raises(holdfast.EngineUnavailable, match="TRYAGAIN") as refused:
                await ours.acquire(locks, "job", timeout=None)
            assert 0.3 <= clock.now() - began < 0.3 + SLACK
            assert not isinstance(refused.value, holdfast.OutcomeUnknown), "the request certainly did not run"
            assert keys(slot.source, slot.target) == set()


@contextmanager
def unserved(cluster: RedisCluster, slot: int) -> Iterator[None]:
    master = cluster.master_of(slot)
    master.cluster("DELSLOTS", slot)
    try:
        yield
    finally:
        master.cluster("ADDSLOTS", slot)


@APIS
async def test_unserved_slot_is_unavailable(api: Api, cluster: RedisCluster) -> None:
    async with open_clients(api) as ours:
        locks = ours.connect(cluster.url, unavailable_after=0.3)
        await ours.do(locks.ping)
        with unserved(cluster, slot_of("job")):
            began = clock.now()
            with pytest.raises(
                holdfast.EngineUnavailable, match=r"CLUSTERDOWN|no server of the cluster has slot"
            ) as down:
                await ours.acquire(locks, "job", timeout=None)
            assert 0.3 <= clock.now() - began < 0.3 + SLACK
            assert not isinstance(down.value, holdfast.OutcomeUnknown)
            other = next(name for name in map("other-{}".format, range(99)) if slot_of(name) != slot_of("job"))
            await ours.do((await ours.acquire(locks, other)).release)
        await ours.do((await ours.acquire(locks, "job")).release)


@contextmanager
def endpoints(cluster: RedisCluster, kind: str) -> Iterator[None]:
    """Sets how servers report the addresses of each other."""
    for node in cluster.nodes:
        node.ask("CONFIG SET", "cluster-preferred-endpoint-type", kind)
    try:
        yield
    finally:
        for node in cluster.nodes:
            node.ask("CONFIG SET", "cluster-preferred-endpoint-type", "ip")


@APIS
@pytest.mark.parametrize("kind", ["unknown-endpoint", "hostname"])
def test_servers_that_do_not_report_their_hosts_are_reached(api: str, kind: str, cluster: RedisCluster) -> None:
    """MOVED and the table have no host or a question mark: it is the host of the asked server."""

    async def body(session: ClusterSession) -> None:
        attempt = make_attempt("job")
        await session.ping(TIMEOUT)
        source = cluster.master_of("job")
        move(cluster, "job")
        before = errors(source, "MOVED")
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
        assert errors(source, "MOVED") == before + 1
        assert await session.release(attempt, TIMEOUT) is Found.OURS

    with endpoints(cluster, kind):
        on(cluster.url, api, body)


@APIS
def test_script_that_finds_a_moved_key_is_retried(api: str, cluster: RedisCluster) -> None:
    """The only key that a waiter's script computes is that of the preceding waiter."""

    async def body(session: ClusterSession) -> None:
        await session.acquire(make_attempt("job"), TIMEOUT)
        line = [make_attempt("job", fair=True) for _ in range(2)]
        for attempt in line:
            await session.contender(attempt, TIMEOUT)._queue_up()
        first = line[0].waiter
        assert first is not None
        with half_moved(cluster, "job") as slot:
            slot.carry(keys_of("job").waiter(first))
            with pytest.raises(RequestFailed, match="non local key") as torn:
                await session.contender(line[1], TIMEOUT)._queue_up()
            assert isinstance(torn.value, TryAgain)
        assert await session.contender(line[1], TIMEOUT)._queue_up() == first

    on(cluster.url, api, body)
